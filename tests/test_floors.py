"""The lowest floors: numbers in words, configuration, the run folder, the command line's manners."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.config import load_config
from gpudoctor.errors import InputError, UsageError
from gpudoctor.model import Severity
from gpudoctor.rundir import RunDir
from gpudoctor.units import duration, rate, render, share, size


def test_numbers_in_words() -> None:
    assert [duration(n) for n in (0, 999, 12_200_000, 1_234_000_000)] == ["0 ns", "999 ns", "12.2 ms", "1.23 s"]
    assert [size(n) for n in (4, 8_388_608, 629_145_600)] == ["4 B", "8 MiB", "600 MiB"]
    assert rate(2.5e10) == "25 GB/s"
    assert [share(f) for f in (0.934, 0.0312, 1)] == ["93 %", "3.1 %", "100 %"]


def test_templates_fill_what_is_there_and_follow_no_attribute() -> None:
    assert render("{n} of {b:B} in {t:ns}, {missing} {text:ns}", {"n": 3, "b": 1024, "t": 1500, "text": "x"}) == "3 of 1 KiB in 1.5 µs, ? x"
    assert render("{n.__class__}", {"n": 3}) == "?"


def project(tmp_path: Path, text: str) -> Path:
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    (tmp_path / "src").mkdir()
    return tmp_path / "src"


def test_config_is_found_above_and_read(tmp_path: Path) -> None:
    config = load_config(project(tmp_path, '[tool.gpudoctor]\nfail-on = "perf"\nignore = ["GD107"]\nper-file-ignores = {"old/*" = ["GD3"]}\n'))
    assert (config.fail_on, config.ignore, config.per_file_ignores, config.root) == (Severity.perf, ("GD107",), {"old/*": ("GD3",)}, tmp_path)


@pytest.mark.parametrize(("line", "told"), [("fail_onn = 1", "unknown key"), ('fail-on = "worst"', "must be one of"), ('ignore = "GD1"', "list of strings"), ("= 3", "cannot be read")])
def test_config_errors_name_file_and_key(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        load_config(project(tmp_path, f"[tool.gpudoctor]\n{line}\n"))


def test_run_folder_keeps_what_a_kill_leaves(tmp_path: Path) -> None:
    run = RunDir.fresh(tmp_path, "train")
    assert RunDir.fresh(tmp_path, "train").root != run.root
    run.update_info(argv=["train.py"])
    run.update_info(exit=0)
    assert run.read_info() == {"schema": 1, "argv": ["train.py"], "exit": 0}
    (run.root / "run.json").write_text('{"argv": [', "utf-8")
    assert run.read_info() == {}
    assert RunDir.is_run(run.root)
    with pytest.raises(InputError, match="not a run folder"):
        RunDir.open(tmp_path)


def gpudoctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gpudoctor", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [("lint", "nowhere.py"), ("lint",), ("analyze", "nowhere.sqlite"), ("rules", "explain", "GD000"), ("report", "nowhere"), ("nonsense",)])
def test_bad_usage_is_told_without_a_traceback(arguments: tuple[str, ...]) -> None:
    done = gpudoctor(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_help_imports_neither_torch_nor_duckdb() -> None:
    code = "import sys; from gpudoctor.cli import cli; cli(['--help'], standalone_mode=False); print(sorted({'torch', 'duckdb', 'pyarrow', 'rich'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for name in ("run", "analyze", "lint", "compare", "gate", "init", "harness", "env", "plan", "rules", "report"):
        assert f"  {name} " in done.stdout


def test_shell_completion_knows_commands_and_options() -> None:
    def complete(words: str, at: int) -> str:
        environment = {**os.environ, "_GPUDOCTOR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        return subprocess.run([sys.executable, "-c", "from gpudoctor.cli import main; main([])"], env=environment, capture_output=True, text=True, check=False).stdout

    assert complete("gpudoctor ana", 1) == "plain,analyze\n"
    assert "plain,--fail-on" in complete("gpudoctor lint --fail", 2)
