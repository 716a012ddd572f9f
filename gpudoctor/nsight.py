"""Where Nsight Systems is on this machine, and whether it can make reports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys", "opt/nvidia/nsight-systems*/*/target-linux-*/nsys", "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems*/bin/nsys", "usr/lib/nsight-systems*/target-linux-*/nsys", "usr/local/cuda*/nsight-systems*/bin/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys", "Program Files/NVIDIA Corporation/Nsight Systems*/target-windows-x64/nsys.exe",
)


def find_nsys(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Path | None:
    """The nsys to use: `$NSYS`, then PATH, then the newest in the usual folders below `root`; None if there is none."""
    environment = os.environ if environment is None else environment
    if named := environment.get("NSYS"):
        found = shutil.which(named, path=environment.get("PATH"))
        return Path(found) if found else None
    if found := shutil.which("nsys", path=environment.get("PATH")):
        return Path(found)
    for pattern in PLACES:
        for path in sorted(root.glob(pattern), reverse=True):
            if os.access(path, os.X_OK):
                return path
    return None


def why_no_report(nsys: Path) -> str:
    """Why this nsys can capture and still make no report, "" where nothing is known against it.

    The nsys that comes with Nsight Compute lacks the importer, or libraries that the importer needs: then only a
    `.qdstrm` comes out, after the run.
    """
    folder = nsys.resolve().parent
    if not folder.name.startswith("target-"):
        return ""
    importer = next(iter(sorted(folder.parent.glob("*linux*/QdstrmImporter"))), None)
    if importer is None:
        return "its importer is not installed"
    libraries = os.pathsep.join(filter(None, (str(importer.parent), os.environ.get("LD_LIBRARY_PATH"))))
    try:
        done = subprocess.run([importer, "--version"], env={"LD_LIBRARY_PATH": libraries}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "its importer does not start"
    missing = re.search(r"libraries: (\S+?):", done.stderr)
    return f"its importer lacks {missing[1]}" if done.returncode and missing else ""
