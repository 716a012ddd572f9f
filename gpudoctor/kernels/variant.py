"""Which kernels exist: one variant is one entry of `kernels.cu` with its macros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

MAX_INPUTS = 8
ELEMENTS = {"F32": 4, "BF16": 2, "F16": 2}
"""Element types and their bytes."""
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_120")
"""What CI compiles for; any newer architecture that NVRTC knows works too."""


class Entry(IntEnum):
    """The kernels in `kernels.cu`."""

    plain = 0
    vectorised = 1
    flat = 2
    many = 3
    finalise = 4


class Level(IntEnum):
    """What the pass computes besides the aggregate; each includes the one before."""

    plain = 0
    statistics = 1
    histogram = 2


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled kernel. `inputs` buffers are added; `write` is off where only statistics are wanted.

    `block` threads a block, `unroll` vectors in flight a thread and input, `resident` blocks a multiprocessor shall hold
    at least, which caps registers.
    """

    entry: Entry
    element: str = "F32"
    inputs: int = 2
    write: bool = True
    level: Level = Level.histogram
    block: int = 512
    unroll: int = 2
    resident: int = 2

    @property
    def symbol(self) -> str:
        return f"gd_{self.entry.name}"

    @property
    def lanes(self) -> int:
        """Elements in 16 bytes."""
        return 16 // ELEMENTS[self.element]

    @property
    def tile_vectors(self) -> int:
        """16-byte vectors in one tile."""
        return self.block * self.unroll

    def macros(self) -> list[tuple[str, str]]:
        return [
            ("ENTRY", str(int(self.entry))), ("ELEMENT", self.element), ("INPUTS", str(self.inputs)), ("WRITE", str(int(self.write))),
            ("LEVEL", str(int(self.level))), ("BLOCK", str(self.block)), ("UNROLL", str(self.unroll)), ("RESIDENT", str(self.resident)),
        ]


def shipped() -> Iterator[Variant]:
    """Every kind of variant that the package launches; other numbers of inputs follow the same template."""
    yield Variant(Entry.finalise)
    for element in ELEMENTS:
        yield Variant(Entry.plain, element)
        yield Variant(Entry.vectorised, element)
        yield from (tuned(Variant(Entry.flat, element, level=level)) for level in Level)
        yield from (tuned(Variant(Entry.flat, element, inputs)) for inputs in (1, 3, MAX_INPUTS))
        for entry in (Entry.flat, Entry.many):
            yield tuned(Variant(entry, element, 1, write=False))
        yield from (tuned(Variant(Entry.many, element, inputs)) for inputs in (1, 2))


def tuned(variant: Variant) -> Variant:
    """`variant` with the shape that was fastest on the machines in `cuda_src/README.md`: about 64 bytes in flight a thread."""
    return replace(variant, unroll=4 if variant.inputs == 1 else 2 if variant.inputs == 2 else 1)
