"""The script sees what it would see under plain `python`, and leaves as it would leave."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_LOOKS = """
import json, multiprocessing, os, sys

class Batch:
    pass

def work(queue):
    queue.put(Batch())

if __name__ == "__main__":
    queue = multiprocessing.get_context("spawn").Queue()
    child = multiprocessing.get_context("spawn").Process(target=work, args=(queue,))
    child.start()
    batch = queue.get(timeout=60)
    child.join()
    print(json.dumps([__name__, __file__, sys.argv, sys.path[0], os.getcwd(), type(batch).__name__, sys.modules["__main__"].work is work]))
"""


def _both(tmp_path: Path, text: str, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """The same script under python and under the bootstrap."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(text, "utf-8")
    relative = str(script.relative_to(tmp_path))
    return [
        subprocess.run([sys.executable, *start, relative, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=100)
        for start in ([], ["-m", "gpudoctor.launch.bootstrap"])
    ]


def test_main_module_is_the_scripts(tmp_path: Path) -> None:
    bare, ours = _both(tmp_path, _LOOKS, "--lr", "0.1")
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == bare.stdout


@pytest.mark.parametrize(
    "text",
    ["import sys; sys.exit(7)", "raise SystemExit('no data')", "raise SystemExit", "1 / 0", "def f():\n    f_is_here\nf()", "x = ("],
    ids=["code", "words", "none", "exception", "nested", "syntax"],
)
def test_ends_like_python(tmp_path: Path, text: str) -> None:
    bare, ours = _both(tmp_path, text)
    assert ours.returncode == bare.returncode
    assert ours.stderr == bare.stderr


def test_interrupt_kills_like_python(tmp_path: Path) -> None:
    bare, ours = _both(tmp_path, "raise KeyboardInterrupt")
    assert ours.returncode == bare.returncode == -signal.SIGINT


def test_module(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "train.py").write_text("import sys\nfrom package import __name__ as p\nprint(__name__, p, sys.argv[1:], __spec__.name)", "utf-8")
    bare, ours = (
        subprocess.run([sys.executable, *start, "-m", "package.train", "a", "-b"], capture_output=True, text=True, cwd=tmp_path, timeout=60)
        for start in ([], ["-m", "gpudoctor.launch.bootstrap"])
    )
    assert ours.stdout == bare.stdout == "__main__ package ['a', '-b'] package.train\n"
