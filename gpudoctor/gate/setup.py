"""`gpudoctor init`: write what a project needs, and never over what it has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from gpudoctor.errors import UsageError

IGNORED = ("gpudoctor-runs/", ".gpudoctor/cache/")


@dataclass(frozen=True, slots=True)
class Written:
    """A file, and what became of it: written, extended, or kept with words on what to add by hand."""

    path: Path
    what: str


def set_up(root: Path, script: str, branch: str, platforms: tuple[str, ...]) -> Iterator[Written]:
    """Write configuration, a pre-commit entry, workflows for `platforms` (github, gitlab) and .gitignore lines below `root`."""
    for name, value in (("script", script), ("branch", branch)):
        if not re.fullmatch(r"[A-Za-z0-9._/ -]+", value):
            raise UsageError(f"{name} {value!r}: use letters, digits, '.', '_', '-' and '/'")
    fill = {"script": script, "branch": branch, "paths": "."}
    yield _config(root / "pyproject.toml", _template("config.toml", fill))
    yield _fresh(root / ".pre-commit-config.yaml", _template("pre-commit.yaml", fill), "gpudoctor")
    if "github" in platforms:
        yield _fresh(root / ".github" / "workflows" / "gpudoctor.yml", _template("github.yml", fill), "gpudoctor")
    if "gitlab" in platforms:
        own = root / ".gitlab-ci.yml"
        ours = not own.exists() or "gpudoctor" in own.read_text("utf-8", errors="replace")
        target = own if ours else root / ".gitlab" / "gpudoctor.yml"
        written = _fresh(target, _template("gitlab.yml", fill), "gpudoctor")
        yield written if target == own else Written(written.path, f"{written.what}; add `include: .gitlab/gpudoctor.yml` to .gitlab-ci.yml")
    yield _ignore(root / ".gitignore")


def _template(name: str, fill: dict[str, str]) -> str:
    text = (resources.files("gpudoctor.gate") / "templates" / name).read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda m: fill.get(m[1], m[0]), text)


def _config(path: Path, text: str) -> Written:
    present = path.read_text("utf-8") if path.is_file() else ""
    try:
        tool = tomllib.loads(present).get("tool", {})
    except ValueError as error:
        raise UsageError(f"{path}: cannot be read ({error}); mend it first") from None
    if "gpudoctor" in tool:
        return Written(path, "kept, it has [tool.gpudoctor]")
    separator = "" if not present or present.endswith("\n") else "\n"
    path.write_text(present + separator + (text if present else text.lstrip("\n")), "utf-8")
    return Written(path, "extended" if present else "written")


def _fresh(path: Path, text: str, mark: str) -> Written:
    if path.exists():
        told = "kept, it names gpudoctor" if mark in path.read_text("utf-8", errors="replace") else "kept; add by hand:\n" + text
        return Written(path, told)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return Written(path, "written")


def _ignore(path: Path) -> Written:
    present = path.read_text("utf-8") if path.is_file() else ""
    missing = [line for line in IGNORED if line not in present.splitlines()]
    if not missing:
        return Written(path, "kept")
    separator = "" if not present or present.endswith("\n") else "\n"
    path.write_text(present + separator + "\n".join(missing) + "\n", "utf-8")
    return Written(path, "extended" if present else "written")
