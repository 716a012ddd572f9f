"""The grammar of one log line: who wrote it, how loud, and what NCCL says in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NCCL = re.compile(
    r"(?:(?P<host>[\w.\-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) )?(?:\[(?P<device>-?\d{1,6})\] )?"
    r"(?:[\w/.\-]{1,200}:\d{1,6} )?NCCL (?P<level>INFO|WARN|ERROR|TRACE|VERSION|ABORT|CALL) (?P<text>.*)"
)
_BARE_VERSION = re.compile(r"(?:^|\s)(NCCL version \d[\w.+\-]*)")
_TORCH = re.compile(r"\[(?P<level>[WEIF])\S{0,40} [^\]]{0,80}?(?P<file>\w{1,60}\.(?:cpp|cc|hpp|h|py)):\d{1,6}\] ?(?P<text>.*)")
_RANK = re.compile(r"\[(?:default|rank|Rank )(\d{1,6})\]|\[(?:PG [^\]]{0,120}? )Rank (\d{1,6})\]|^\[(?:rank|RANK) ?(\d{1,6})\]")
_PYTHON = re.compile(
    r"(?P<text>\b[\w.]{0,80}(?:Error|Exception|Warning)\b: .*|.*\b(?:Watchdog caught collective operation timeout|Detected mismatch between collectives|"
    r"Timed out waiting \d|CUDA out of memory|out of shared memory|Bus error|is not compatible with the current PyTorch|Unable to find (?:interface|address)|"
    r"no kernel image is available|find_unused_parameters|Expected to have finished reduction|lagging/dead/mismatched ranks).*|.*\bncclUnhandled\w+.*)"
)
_KERNEL = re.compile(r"(?P<text>(?:NVRM: |AMD-Vi: |DMAR: |ACSCtl: |.*IO_PAGE_FAULT).*)")
_CHANNEL = re.compile(r"(?:Channel|Ring) (\d{1,6})(?:/\d{1,6})? : (\d{1,9})(?:\[[0-9a-fA-F]+\])? -> (\d{1,9})(?:\[[0-9a-fA-F]+\])?(?: \[(send|receive)\])? via (\S.*)")
_NVLS = re.compile(r"NVLS comm \S+ headRank (-?\d{1,9}) nHeads \d")
_INIT = re.compile(r"comm 0x[0-9a-fA-F]+ rank (\d{1,9}) n[Rr]anks (\d{1,9})")
_VARIABLE = re.compile(r"\b((?:NCCL|RCCL|CUDA|TORCH)_[A-Z0-9_]+) set (?:by environment )?to (.+?)\.?$")
_LEVELS = {"W": "WARN", "E": "ERROR", "I": "INFO", "F": "ERROR", "VERSION": "INFO", "ABORT": "ERROR", "CALL": "TRACE"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line that matters: where, who, what. `process` is (host, pid), ("", 0) if the line does not say."""

    number: int
    kind: str
    level: str
    text: str
    host: str | None = None
    pid: int = 0
    rank: int | None = None

    @property
    def process(self) -> tuple[str, int]:
        return (self.host or "", self.pid)


@dataclass(frozen=True, slots=True)
class Channel:
    """A connection that NCCL made from `rank` to `peer`; `receives` if the peer wrote the line."""

    number: int
    rank: int
    peer: int
    kind: str
    detail: str
    receives: bool


@dataclass(frozen=True, slots=True)
class Init:
    """A communicator of `size` ranks in which the writer is `rank`."""

    rank: int
    size: int


def parse_line(text: str, number: int) -> Line | None:
    """Return what the line says, None for lines that no rule or table needs (NCCL's TRACE, the user's prints)."""
    if "NCCL " in text:
        if found := _NCCL.search(text):
            level = _LEVELS.get(found["level"], found["level"])
            if level == "TRACE":
                return None
            return Line(number, "nccl", level, found["text"].strip(), found["host"], int(found["pid"] or 0))
        if bare := _BARE_VERSION.search(text):
            return Line(number, "nccl", "INFO", bare[1])
    rank = _rank_of(text)
    if found := _TORCH.search(text):
        return Line(number, "torch", _LEVELS[found["level"]], found["text"].strip(), rank=rank)
    if found := _PYTHON.search(text):
        warning = "Warning" in found["text"].split(":", 1)[0] or "is not compatible" in found["text"]
        return Line(number, "python", "WARN" if warning else "ERROR", found["text"].strip(), rank=rank)
    if found := _KERNEL.search(text):
        return Line(number, "kernel", "WARN", found["text"].strip(), rank=rank)
    return None


def _rank_of(text: str) -> int | None:
    found = _RANK.search(text)
    return int(next(g for g in found.groups() if g is not None)) if found else None


def channel_of(text: str) -> Channel | None:
    """The connection that the line reports, if it does."""
    if found := _CHANNEL.search(text):
        number, rank, peer = int(found[1]), int(found[2]), int(found[3])
        return Channel(number, rank, peer, _transport(found[5]), found[5].strip(), found[4] == "receive")
    if found := _NVLS.search(text):
        return Channel(0, -1, -1, "NVLS", f"head {found[1]}", False)
    return None


def _transport(words: str) -> str:
    head = words.split("/", 1)[0].strip().upper()
    if words.startswith("direct shared memory") or head == "SHM":
        return "SHM"
    return head if head in ("P2P", "NET", "NVLS", "COLLNET") else words.split()[0]


def init_of(text: str) -> Init | None:
    """The communicator that the line reports, if it does."""
    found = _INIT.search(text)
    return Init(int(found[1]), int(found[2])) if found else None


def variable_of(text: str) -> tuple[str, str] | None:
    """The variable that NCCL found set, and its value."""
    found = _VARIABLE.search(text)
    return (found[1], found[2].strip()[:200]) if found else None
