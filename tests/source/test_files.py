"""Files that cannot be linted get a clear line each; the rest is linted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpudoctor.source import load_project, parse_sources
from gpudoctor.source.files import MAX_BYTES, Unreadable, decode
from gpudoctor.source.notebook import cells_to_python

GOOD = "import torch\nx = torch.zeros(1)\n"


def _reasons(folder: Path) -> dict[str, str]:
    project = load_project([folder])
    assert any(m.path.endswith("good.py") for m in project.modules)
    return {os.path.basename(p.path): p.reason for p in project.problems}


def test_each_bad_file_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    (tmp_path / "old.py").write_text("import torch\nprint 'hello'\n")
    (tmp_path / "raises.py").write_text("raise ValueError, 'x'\n")
    (tmp_path / "huge.py").write_text("x = 1\n" * (5 * 2**20 // 6))
    (tmp_path / "nul.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "latin.py").write_bytes("s = 'é'\n".encode("latin-1"))
    (tmp_path / "unknown.py").write_bytes(b"# -*- coding: klingon -*-\nx = 1\n")
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    (tmp_path / "empty.ipynb").write_text("{}")
    reasons = _reasons(tmp_path)
    assert reasons["broken.py"].startswith("line 1: broken syntax")
    assert "Python 2 syntax" in reasons["old.py"]
    assert "Python 2 syntax" in reasons["raises.py"]
    assert "too large" in reasons["huge.py"]
    assert "NUL" in reasons["nul.py"]
    assert "does not decode" in reasons["latin.py"]
    assert "klingon" in reasons["unknown.py"]
    assert "deep.py" in reasons
    assert "no cells" in reasons["empty.ipynb"]
    assert all("\n" not in r for r in reasons.values())


def test_encodings_are_honoured(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_bytes("# -*- coding: latin-1 -*-\ns = 'é'\n".encode("latin-1"))
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfs = 1\r\nt = 2\r\n")
    assert _reasons(tmp_path) == {}


def test_utf16_is_read() -> None:
    assert decode("x = 'ü'\n".encode("utf-16")) == "x = 'ü'\n"


def test_link_loops_end(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "inner.py").write_text(GOOD)
    (tmp_path / "pack" / "again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    reasons = _reasons(tmp_path)
    assert "read already" in reasons["again"]
    assert "circle" in reasons["self.py"]
    assert "nowhere" in reasons["gone.py"]


def test_a_file_behind_two_names_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "same.py").symlink_to(tmp_path / "good.py")
    assert len(load_project([tmp_path]).modules) == 1


def test_exclude_and_vendored_folders(tmp_path: Path) -> None:
    for name in ("good.py", "generated/a.py", "venv/b.py", ".hidden/c.py", "tests/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(GOOD)
    found = {os.path.relpath(m.path, tmp_path) for m in load_project([tmp_path], ["generated", "test*"]).modules}
    assert found == {"good.py"}


def test_notebook_cells_keep_their_lines() -> None:
    cells = [{"cell_type": "markdown", "source": "# title"},
             {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n", "!pip install x"]},
             {"cell_type": "code", "source": "%%bash\nls *"},
             {"cell_type": "code", "source": "torch.cuda.memory_reserved(0)"}]
    text, places = cells_to_python(json.dumps({"cells": cells}))
    assert text.split("\n")[:3] == ["pass", "import torch", "pass"]
    assert places == [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)]
    module = parse_sources({"n.ipynb": json.dumps({"cells": cells})})[0]
    assert module.at(6).path == "n.ipynb:cell 4"
    assert module.at(6).line == 1


def test_other_kernels_are_refused() -> None:
    with pytest.raises(Unreadable, match="julia"):
        cells_to_python(json.dumps({"cells": [], "metadata": {"kernelspec": {"language": "julia"}}}))


def test_cuda_inside_python_points_at_the_python_line() -> None:
    text = "import cupy\ncode = r'''\n__global__ void f(int n) {\n  if (threadIdx.x < n) { __syncwarp(); }\n}'''\nk = cupy.RawKernel(code, 'f')\n"
    inner = parse_sources({"k.py": text})[1]
    assert inner.language == "cuda"
    assert inner.at(3).line == 4


def test_limit_is_what_the_message_says() -> None:
    assert MAX_BYTES == 2 * 2**20
