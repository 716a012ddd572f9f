"""The one seam to a machine: everything asked goes through `Machine`, so that a recording can answer instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gpudoctor.errors import InputError

RECORDING = "gpudoctor.machine/1"


class Machine(Protocol):
    """Questions to a machine. None means that it could not be seen; nothing raises."""

    def text(self, path: str) -> str | None:
        """A small text file, such as one in /sys or /proc."""

    def blob(self, path: str) -> bytes | None:
        """A small binary file, such as a PCI configuration space."""

    def entries(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if there is none."""

    def target(self, path: str) -> str | None:
        """Where a path leads, all links followed."""

    def capacity(self, path: str) -> tuple[int, int] | None:
        """Total and free bytes of a file system."""

    def nvml(self) -> dict[str, Any]:
        """NVML's raw answers (see `nvml.ask`), or {"error": words}."""

    def environment(self) -> dict[str, str]:
        """Variables from the allow-list."""

    def process(self) -> dict[str, Any]:
        """host, cpus (list this process may use), memlock and nofile limits (-1 unlimited)."""

    def packages(self) -> dict[str, str]:
        """Versions of torch and NCCL packages as installed, by name."""

    def copies(self) -> dict[str, Any]:
        """What real copies measured (see `gpudoctor.probes.link_check`), or {"error": words}."""


@dataclass(slots=True)
class RecordedMachine:
    """A machine told by a JSON document; absent answers mean unseen."""

    answers: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> RecordedMachine:
        """Read a recording; InputError if the file is none."""
        try:
            answers = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a recorded machine ({error}); make one with `gpudoctor env --record FILE`") from None
        if not isinstance(answers, dict) or answers.get("schema") != RECORDING:
            raise InputError(f"{path}: not a recorded machine of schema {RECORDING}; make one with `gpudoctor env --record FILE`")
        return cls(answers)

    def _of(self, question: str, path: str) -> Any:
        return self.answers.get(question, {}).get(path)

    def text(self, path: str) -> str | None:
        found = self._of("text", path)
        return None if found is None else str(found)

    def blob(self, path: str) -> bytes | None:
        found = self._of("blob", path)
        return None if found is None else bytes.fromhex(found)

    def entries(self, path: str) -> list[str]:
        return sorted(self._of("entries", path) or [])

    def target(self, path: str) -> str | None:
        found = self._of("target", path)
        return None if found is None else str(found)

    def capacity(self, path: str) -> tuple[int, int] | None:
        found = self._of("capacity", path)
        return (int(found[0]), int(found[1])) if found else None

    def nvml(self) -> dict[str, Any]:
        return dict(self.answers.get("nvml", {"error": "not recorded"}))

    def environment(self) -> dict[str, str]:
        return dict(self.answers.get("environment", {}))

    def process(self) -> dict[str, Any]:
        return dict(self.answers.get("process", {}))

    def packages(self) -> dict[str, str]:
        return dict(self.answers.get("packages", {}))

    def copies(self) -> dict[str, Any]:
        return dict(self.answers.get("copies", {"error": "not recorded"}))


@dataclass(slots=True)
class Recorder:
    """Passes questions on to `machine` and keeps the answers."""

    machine: Machine
    answers: dict[str, Any] = field(default_factory=lambda: {"schema": RECORDING})

    def save(self, path: Path) -> None:
        """Write what was asked so far as a recording."""
        path.write_text(json.dumps(self.answers, indent=1, sort_keys=True) + "\n", "utf-8")

    def _path(self, question: str, path: str, ask: Callable[[str], Any], keep: Callable[[Any], Any] = lambda v: v) -> Any:
        answer = ask(path)
        if answer is not None and answer != []:
            self.answers.setdefault(question, {})[path] = keep(answer)
        return answer

    def _whole(self, question: str, ask: Callable[[], Any]) -> Any:
        if question not in self.answers:
            self.answers[question] = ask()
        return self.answers[question]

    def text(self, path: str) -> str | None:
        answer: str | None = self._path("text", path, self.machine.text)
        return answer

    def blob(self, path: str) -> bytes | None:
        answer: bytes | None = self._path("blob", path, self.machine.blob, bytes.hex)
        return answer

    def entries(self, path: str) -> list[str]:
        answer: list[str] = self._path("entries", path, self.machine.entries)
        return answer

    def target(self, path: str) -> str | None:
        answer: str | None = self._path("target", path, self.machine.target)
        return answer

    def capacity(self, path: str) -> tuple[int, int] | None:
        answer: tuple[int, int] | None = self._path("capacity", path, self.machine.capacity, list)
        return answer

    def nvml(self) -> dict[str, Any]:
        return dict(self._whole("nvml", self.machine.nvml))

    def environment(self) -> dict[str, str]:
        return dict(self._whole("environment", self.machine.environment))

    def process(self) -> dict[str, Any]:
        return dict(self._whole("process", self.machine.process))

    def packages(self) -> dict[str, str]:
        return dict(self._whole("packages", self.machine.packages))

    def copies(self) -> dict[str, Any]:
        return dict(self._whole("copies", self.machine.copies))
