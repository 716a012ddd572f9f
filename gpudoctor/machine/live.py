"""The machine we run on."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from gpudoctor.machine import nvml

ALLOWED = re.compile(r"(NCCL|RCCL|CUDA|TORCH|PYTORCH|OMP|GLOO)_[A-Z0-9_]+|NVIDIA_VISIBLE_DEVICES|LOCAL_RANK|RANK|WORLD_SIZE")
PACKAGES = ("torch", "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "accelerate", "lightning", "deepspeed")
_COPY_SECONDS = 120


@dataclass(frozen=True, slots=True)
class LiveMachine:
    """Answers from this host. `copy` allows short real copies on the cards (a subprocess that imports torch)."""

    copy: bool = True

    def text(self, path: str) -> str | None:
        try:
            return Path(path).read_text("utf-8", errors="replace")[:65536]
        except OSError:
            return None

    def blob(self, path: str) -> bytes | None:
        try:
            with Path(path).open("rb") as stream:
                return stream.read(4096)
        except OSError:
            return None

    def entries(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def target(self, path: str) -> str | None:
        return os.path.realpath(path) if os.path.exists(path) else None

    def capacity(self, path: str) -> tuple[int, int] | None:
        try:
            stat = os.statvfs(path)
        except (OSError, AttributeError):
            return None
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def nvml(self) -> dict[str, Any]:
        return nvml.ask()

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in sorted(os.environ.items()) if ALLOWED.fullmatch(name)}

    def process(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"host": socket.gethostname()}
        if hasattr(os, "sched_getaffinity"):
            answer["cpus"] = sorted(os.sched_getaffinity(0))
        if sys.platform != "win32":
            import resource

            for name, limit in (("memlock", resource.RLIMIT_MEMLOCK), ("nofile", resource.RLIMIT_NOFILE)):
                soft = resource.getrlimit(limit)[0]
                answer[name] = -1 if soft == resource.RLIM_INFINITY else soft
        return answer

    def packages(self) -> dict[str, str]:
        found = {}
        for name in PACKAGES:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        return found

    def copies(self) -> dict[str, Any]:
        if not self.copy:
            return {"error": "copies were not asked for"}
        command = [sys.executable, "-m", "gpudoctor.probes.link_check"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COPY_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": f"the copies did not finish: {error.__class__.__name__}"}
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return {"error": f"the copies failed: {last[:200]}"}
        return answer if isinstance(answer, dict) else {"error": "the copies gave no answer"}
