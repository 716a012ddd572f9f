"""`gpudoctor lint` as a user and a CI job see it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.cli import main
from tests.source.fieldcases import FOLDER

FAULT = FOLDER / "01_module_bypass" / "train.py"


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["lint", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def _findings(out: str) -> list[dict[str, Any]]:
    return list(json.loads(out)["findings"])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_bytes(FAULT.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_exit_codes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "train.py")[0] == 1
    assert _run(capsys, "train.py", "--ignore", "GD301")[0] == 0
    assert _run(capsys, str(FOLDER / "21_item_every_step" / "train.py"))[0] == 0
    assert _run(capsys, str(FOLDER / "21_item_every_step" / "train.py"), "--fail-on", "perf")[0] == 1
    code, _, err = _run(capsys, "nowhere.py")
    assert code == 2
    assert err.count("\n") == 1


def test_a_broken_file_alone_is_an_error_and_in_company_a_note(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "bad.py").write_text("def f(:\n")
    code, out, err = _run(capsys, "bad.py")
    assert (code, out) == (2, "")
    assert "bad.py: line 1: broken syntax" in err
    code, out, err = _run(capsys, ".", "--format", "json")
    assert code == 1
    assert "bad.py: line 1" in err
    assert json.loads(out)["summary"]["problems"][0]["path"].endswith("bad.py")


def test_suppression_in_the_line_and_by_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (project / "train.py").read_text()
    (project / "train.py").write_text(text.replace("model.module(x)", "model.module(x)  # gpudoctor: ignore[ddp-forward-bypassed] on purpose"))
    code, out, _ = _run(capsys, "train.py", "--format", "json")
    assert code == 0
    assert json.loads(out)["summary"]["suppressed"] == 1
    (project / "train.py").write_text(text)
    (project / "pyproject.toml").write_text('[tool.gpudoctor]\nper-file-ignores = {"tr*.py" = ["GD301"]}\n')
    assert _run(capsys, "train.py")[0] == 0


def test_baseline_hides_what_is_known_and_survives_moved_lines(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "train.py", "--write-baseline", "known.json")[0] == 0
    (project / "train.py").write_text("# a comment\n\n" + (project / "train.py").read_text())
    code, out, _ = _run(capsys, "train.py", "--baseline", "known.json", "--format", "json")
    assert code == 0
    assert json.loads(out)["summary"]["known"] == 1
    (project / "train.py").write_text((project / "train.py").read_text() + "\ntorch.cuda.memory_reserved(0)\n")
    _, out, _ = _run(capsys, "train.py", "--baseline", "known.json", "--format", "json")
    assert [f["name"] for f in _findings(out)] == ["prealloc-misuse"]
    (project / "broken.json").write_text("[]")
    assert _run(capsys, "train.py", "--baseline", "broken.json")[0] == 2


@pytest.mark.parametrize("case", ["07_missing_set_epoch", "09_clip_before_unscale", "22_empty_cache_in_loop", "24_load_without_map_location"])
def test_fix_mends_and_diff_only_shows(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_bytes((FOLDER / case / "train.py").read_bytes())
    code, out, _ = _run(capsys, "train.py", "--diff")
    assert code == 1
    assert out.startswith("--- a/train.py")
    assert file.read_bytes() == (FOLDER / case / "train.py").read_bytes()
    code, out, err = _run(capsys, "train.py", "--fix", "--format", "json")
    assert code == 0
    assert _findings(out) == []
    assert "1 fixes in 1 files" in err
    assert _run(capsys, "train.py", "--diff") == (0, "", "")


def test_notebook_findings_name_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["import torch", "torch.cuda.memory_reserved(0)", "torch.cuda.memory_reserved(1)  # gpudoctor: ignore[GD209]"]
    cells = [{"cell_type": "code", "source": line} for line in lines]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    _, out, _ = _run(capsys, "n.ipynb", "--format", "json")
    assert [f["location"]["path"] for f in _findings(out)] == ["n.ipynb:cell 2"]


def test_many_files_in_processes_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(40):
        (tmp_path / f"m{i:02}.py").write_text(f"import torch\nn = {i}\ntorch.cuda.memory_reserved(n)\n")
    (tmp_path / "bad.py").write_text("x = (\n")
    one, many = (_run(capsys, ".", "--jobs", n, "--format", "json") for n in ("1", "2"))
    assert json.loads(one[1]) == json.loads(many[1])
    assert len(_findings(one[1])) == 40
    assert one[2] == many[2]


def test_no_torch_is_imported(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from gpudoctor.cli import main\ntry: main(['lint', 'train.py', '--format', 'json'])\nexcept SystemExit: pass\nassert not {'torch', 'duckdb', 'numpy'} & set(sys.modules), sys.modules.keys()"
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, cwd=project)
