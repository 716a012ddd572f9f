"""Runs a small script as one rank or more, probes installed, and returns what they recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from gpudoctor.harness.ranks import environment, free_port

_DRIVER = """
import json, os, runpy, sys
from gpudoctor.probes import finish, install
from gpudoctor.probes.settings import ProbeSettings
options = json.loads(sys.argv[2])
install(ProbeSettings(out=sys.argv[1], rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]),
                      local_rank=int(os.environ["RANK"]), nvtx=False, tensorboard=False, **options))
try:
    runpy.run_path(sys.argv[3], run_name="__main__")
finally:
    finish()
"""

Record = tuple[str, dict[str, Any]]


def run_ranks(folder: Path, script: str, ranks: int = 1, check: bool = True, **options: Any) -> list[Record]:
    """Run `script` with gloo ready to start, and return the records of all ranks; with `check` each must end well."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(script))
    out = folder / "run"
    (out / "capture").mkdir(parents=True, exist_ok=True)
    place = {**environment(ranks), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, "-c", _DRIVER, str(out), json.dumps(options), str(path)], env={**place, "RANK": str(r)},
                         cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for r in range(ranks)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert not check or process.returncode == 0, errors
    return [record for r in range(ranks) for record in _records(out / "capture" / f"probe.rank{r}.jsonl")]


def rows(records: list[Record], table: str) -> list[dict[str, Any]]:
    """The rows of one table, in the order of recording, ranks one after the other."""
    return [columns for name, columns in records if name == table]


def facts(records: list[Record], kind: str) -> list[dict[str, Any]]:
    """The facts of one kind."""
    return [row for row in rows(records, "fact") if row.get("kind") == kind]


def _records(path: Path) -> list[Record]:
    return [(table, columns) for table, columns in map(json.loads, path.read_text().splitlines())]
