"""Facts of the host that are no card's: driver, versions, container, memory for sharing, IOMMU, limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gpudoctor.machine import pci
from gpudoctor.machine.cards import Card
from gpudoctor.machine.seam import Machine


@dataclass(frozen=True, slots=True)
class Fact:
    """One answer: words for people, a number for rules."""

    name: str
    text: str = ""
    value: float | None = None


def facts_of(machine: Machine, nvml: dict[str, Any], copies: dict[str, Any], cards: list[Card]) -> list[Fact]:
    """Everything the host told; what it did not tell is absent."""
    return [
        *_driver(machine, nvml), *_software(machine, copies), *_sharing(machine), *_surroundings(machine),
        *_bus(machine, cards), *[Fact("interface", name) for name in machine.entries("/sys/class/net")],
    ]


def _driver(machine: Machine, nvml: dict[str, Any]) -> list[Fact]:
    facts = [Fact("pci_cards", "", len(pci.nvidia_cards(machine)))]
    if nvml.get("driver"):
        facts.append(Fact("driver", nvml["driver"]))
    if nvml.get("cuda"):
        facts.append(Fact("cuda_driver", f"{nvml['cuda'] // 1000}.{nvml['cuda'] % 1000 // 10}", nvml["cuda"]))
    if "error" in nvml:
        facts.append(Fact("driver_error", str(nvml["error"])))
    module = machine.text("/proc/driver/nvidia/version")
    if module and (found := re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", module)):
        facts.append(Fact("kernel_module", found[1]))
    return facts


def _software(machine: Machine, copies: dict[str, Any]) -> list[Fact]:
    packages, facts = machine.packages(), []
    if torch := copies.get("torch") or packages.get("torch"):
        facts.append(Fact("torch", str(torch)))
    if copies.get("cuda"):
        facts.append(Fact("torch_cuda", str(copies["cuda"])))
    if copies.get("archs"):
        facts.append(Fact("torch_archs", " ".join(copies["archs"])))
    nccl = copies.get("nccl") or _version(next((v for n, v in sorted(packages.items()) if n.startswith("nvidia-nccl")), ""))
    if nccl and len(nccl) >= 3:
        facts.append(Fact("nccl", ".".join(map(str, nccl[:3])), nccl[0] * 10000 + nccl[1] * 100 + nccl[2]))
    return facts


def _version(text: str) -> list[int] | None:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return [int(g) for g in found.groups()] if found else None


def _sharing(machine: Machine) -> list[Fact]:
    facts = []
    if shm := machine.capacity("/dev/shm"):
        facts += [Fact("shm_total", "", shm[0]), Fact("shm_free", "", shm[1])]
    process = machine.process()
    facts += [Fact(name, "unlimited" if process[name] < 0 else str(process[name]), process[name]) for name in ("memlock", "nofile") if name in process]
    if cpus := process.get("cpus"):
        facts.append(Fact("cpus", _ranges(cpus), len(cpus)))
    limit = (machine.text("/sys/fs/cgroup/memory.max") or "").strip()
    if limit.isdigit():
        facts.append(Fact("memory_limit", "cgroup", int(limit)))
    return facts


def _surroundings(machine: Machine) -> list[Fact]:
    facts = []
    kernel = machine.text("/proc/version") or ""
    if kernel:
        facts.append(Fact("kernel", " ".join(kernel.split()[:3])))
    if "microsoft" in kernel.lower():
        facts.append(Fact("wsl", "WSL 2" if "WSL2" in kernel or "wsl2" in kernel.lower() else "WSL"))
    if container := _container(machine):
        facts.append(Fact("container", container))
    balancing = (machine.text("/proc/sys/kernel/numa_balancing") or "").strip()
    if balancing in ("0", "1", "2"):
        facts.append(Fact("numa_balancing", "on" if balancing != "0" else "off", int(balancing)))
    return facts


def _container(machine: Machine) -> str | None:
    if machine.text("/.dockerenv") is not None:
        return "Docker"
    if machine.text("/run/.containerenv") is not None:
        return "Podman"
    if machine.text("/var/run/secrets/kubernetes.io/serviceaccount/namespace") is not None:
        return "Kubernetes"
    groups = machine.text("/proc/1/cgroup") or ""
    return next((word for word in ("kubepods", "docker", "containerd", "lxc") if word in groups), None)


def _bus(machine: Machine, cards: list[Card]) -> list[Fact]:
    addresses = [c.address for c in cards if c.address]
    if not addresses:
        return []
    facts = [Fact("iommu", pci.iommu_of(machine, addresses))]
    redirects = pci.acs_redirects(machine, addresses)
    if redirects is not None:
        facts.append(Fact("acs_redirect", "on" if redirects else "off", redirects))
    return facts


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] → `0-2,5`."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
