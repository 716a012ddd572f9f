"""Formats by name; each is a module with `render(report, stream)`, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TextIO

from gpudoctor.errors import UsageError
from gpudoctor.model import Report

FORMATS = {
    "terminal": "terminal", "json": "as_json", "html": "html", "sarif": "sarif", "junit": "junit", "github": "github", "markdown": "markdown",
}


def render(report: Report, name: str, stream: TextIO) -> None:
    """Write `report` to `stream` in the format `name`."""
    if name not in FORMATS:
        raise UsageError(f"no format {name}; choose from {', '.join(FORMATS)}")
    import_module(f"gpudoctor.report.{FORMATS[name]}").render(report, stream)
