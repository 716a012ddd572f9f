"""The reference is what the code prints; every rule, command and table is in it; both READMEs give the same commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.cli import COMMANDS
from gpudoctor.rulebook.load import load_rules
from gpudoctor.tables import TABLES

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import build  # noqa: E402


def test_pages_are_as_the_code_prints_them() -> None:
    old = [name for name, text in build.pages() if not (ROOT / "docs" / name).is_file() or (ROOT / "docs" / name).read_text("utf-8") != text]
    assert not old, "run `python docs/build.py`"
    assert build.stale() == []


def test_each_rule_command_and_table_is_documented() -> None:
    rules = (ROOT / "docs" / "rules.md").read_text("utf-8")
    commands = (ROOT / "docs" / "commands.md").read_text("utf-8")
    tables = (ROOT / "docs" / "tables.md").read_text("utf-8")
    assert [r.id for r in load_rules() if f"[{r.id} {r.slug}]" not in rules] == []
    assert [c for c in COMMANDS if f"## gpudoctor {c}\n" not in commands] == []
    assert [t for t in TABLES if f"## {t}\n" not in tables] == []


def blocks(name: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / name).read_text("utf-8"), re.S)


def test_the_chinese_readme_gives_the_same_commands() -> None:
    assert blocks("README.zh-CN.md") == blocks("README.md")
    cells = [re.findall(r"`(gpudoctor [^`]*)`", (ROOT / n).read_text("utf-8")) for n in ("README.md", "README.zh-CN.md")]
    assert cells[0] == cells[1]


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs mkdocs-material, of the extra docs")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "rules" / "index.html").is_file()
