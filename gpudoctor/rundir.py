"""The run folder: one place that knows which file lies where.

    run.json          schema version, argv, versions, devices, exit state
    capture/          what recorders wrote, as it came: probe.rankN.jsonl, *.nsys-rep, kineto.rankN.json.gz, nccl.*.log
    tables/*.parquet  canonical tables
    logs/rankN.txt    each rank's output
    tensorboard/      event files
    findings.json     the report as JSON
    report.html
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError

RUN_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class RunDir:
    """A run folder; every property is a path that may not exist yet."""

    root: Path

    @classmethod
    def create(cls, root: Path) -> RunDir:
        """Make the folder and its parts; an existing folder is kept and added to."""
        run = cls(root)
        for part in (run.capture, run.tables, run.logs):
            part.mkdir(parents=True, exist_ok=True)
        return run

    @classmethod
    def fresh(cls, parent: Path, stem: str) -> RunDir:
        """Make a new folder `parent/STEM-YYYYMMDD-HHMMSS[-N]`."""
        base = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        for n in range(1, 10_000):
            root = parent / (base if n == 1 else f"{base}-{n}")
            try:
                root.mkdir(parents=True)
            except FileExistsError:
                continue
            return cls.create(root)
        raise InputError(f"{parent}: too many runs named {base}; give --out")

    @classmethod
    def open(cls, root: Path) -> RunDir:
        """Open an existing run folder; InputError if `root` is none."""
        if not cls.is_run(root):
            raise InputError(f"{root}: not a run folder (no run.json); give the folder that `gpudoctor run` named")
        return cls(root)

    @staticmethod
    def is_run(root: Path) -> bool:
        return root.is_dir() and ((root / "run.json").is_file() or (root / "capture").is_dir())

    @property
    def capture(self) -> Path:
        return self.root / "capture"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    @property
    def findings(self) -> Path:
        return self.root / "findings.json"

    @property
    def html(self) -> Path:
        return self.root / "report.html"

    def probe_file(self, rank: int) -> Path:
        """Where rank `rank` appends its records, one JSON line each: `[table, {column: scalar or list}]`."""
        return self.capture / f"probe.rank{rank}.jsonl"

    def rank_log(self, rank: int) -> Path:
        return self.logs / f"rank{rank}.txt"

    def read_info(self) -> dict[str, Any]:
        """Return run.json, or an empty dict if it is absent or was cut short."""
        with contextlib.suppress(OSError, ValueError):
            info = json.loads((self.root / "run.json").read_text("utf-8"))
            if isinstance(info, dict):
                return info
        return {}

    def update_info(self, **fields: Any) -> None:
        """Merge `fields` into run.json; the file is replaced in one move."""
        info = {"schema": RUN_SCHEMA, **self.read_info(), **fields}
        write_atomic(self.root / "run.json", json.dumps(info, indent=1, default=str))


def write_atomic(path: Path, text: str) -> None:
    """Write `text` beside `path`, then move it there, so that a kill leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
