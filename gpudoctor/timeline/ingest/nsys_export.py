"""nsys reports (.nsys-rep, .qdrep): exported once by the nsys of this machine, then read as SQLite."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudoctor.errors import InputError
from gpudoctor.nsight import find_nsys
from gpudoctor.timeline.ingest import nsys_sqlite
from gpudoctor.timeline.ingest.nsys_tables import NsysTrace

_SUFFIXES = (".nsys-rep", ".qdrep")
_PRODUCER = re.compile(rb"20\d\d\.\d+\.\d+\.\d+-")
_SCANNED = 64 << 20
_TIMEOUT_S = 3600


def matches(head: bytes, path: Path) -> bool:
    """True for a binary file with a report's name; its format is nsys's own, so nsys judges the rest."""
    return path.suffix in _SUFFIXES and _is_binary(head)


def _is_binary(head: bytes) -> bool:
    return any(byte < 9 or 13 < byte < 32 for byte in head[:4096])


@contextmanager
def open_trace(path: Path) -> Iterator[NsysTrace]:
    """Export the report and open what came out. InputError says which nsys was used and why it failed."""
    nsys = find_nsys()
    if nsys is None:
        raise InputError(f"{path}: reading it needs Nsight Systems, which is not on PATH, in $NSYS or in the usual folders; or export it to .sqlite elsewhere")
    with tempfile.TemporaryDirectory(prefix="gpudoctor-", ignore_cleanup_errors=True) as folder, nsys_sqlite.open_trace(export(path, nsys, Path(folder))) as trace:
        trace.path = path
        trace.notes.append(f"{path.name} exported by {nsys}")
        yield trace


def export(path: Path, nsys: Path, folder: Path) -> Path:
    """Export to SQLite under a temporary name and return the finished file in `folder`; InputError if nsys refuses."""
    partial, finished = folder / "partial.sqlite", folder / "report.sqlite"
    done = _run(path, nsys, partial, "--include-json=true")  # Python frames are JSON
    if done.returncode != 0 and b"include-json" in done.stdout:
        done = _run(path, nsys, partial)
    if done.returncode != 0 or not partial.is_file() or partial.stat().st_size < 100:
        raise InputError(f"{path}: {nsys} cannot export it{_why(path, nsys, done.stdout)}")
    partial.rename(finished)
    return finished


def _run(path: Path, nsys: Path, out: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(nsys), "export", "--type=sqlite", f"--output={out}", "--force-overwrite=true", *options, str(path.resolve())]
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "SystemRoot", "TEMP")}
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, env=environment, check=False)
    except OSError as error:
        raise InputError(f"{path}: {nsys} does not start ({error.strerror}); set $NSYS to one that does") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{path}: {nsys} took over {_TIMEOUT_S // 60} minutes to export it") from None


def _why(path: Path, nsys: Path, output: bytes) -> str:
    made, have = producer(path), _version(nsys)
    if made and have and _key(made) > _key(have):
        return f": the report was made by nsys {made}, newer than {have}; install that version or set $NSYS"
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return f" ({lines[-1][:160]})" if lines else ""


def producer(path: Path) -> str | None:
    """The version of nsys that wrote the report, as its strings tell."""
    with path.open("rb") as file:
        found = _PRODUCER.findall(file.read(_SCANNED))
    return max((f[:-1].decode() for f in found), key=_key, default=None)


def _version(nsys: Path) -> str | None:
    try:
        text = subprocess.run([str(nsys), "--version"], capture_output=True, timeout=60, check=False).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"20\d\d\.\d+(\.\d+)*", text)
    return match[0] if match else None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(p) for p in version.split("."))[:3]
