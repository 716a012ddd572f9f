"""What an operator does to its arguments, read once from its schema and then remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MAKE_NOTHING = ("empty", "new_empty", "empty_strided", "new_empty_strided", "empty_like", "empty_permuted", "_efficientzerotensor")
_ONLY_VIEW = ("_unsafe_view", "_reshape_alias", "lift_fresh", "set_", "resize_", "resize_as_", "wait_tensor", "monitored_barrier_", "barrier")
_COPIES = ("copy_", "_to_copy", "_copy_from")


@dataclass(frozen=True, slots=True)
class Operator:
    """How to read a call: which arguments are read and written, by position and by name.

    `fresh` says that outputs are new memory, written by the call; `copies` that it may move data
    between devices; `plain` that it is neither such a copy nor a collective.
    """

    name: str
    skip: bool
    read: tuple[bool, ...]
    written: tuple[bool, ...]
    position: dict[str, int]
    fresh: bool
    copies: bool
    collective: bool
    plain: bool


def describe(func: Any) -> Operator:
    """Read the schema of an OpOverload."""
    schema = func._schema
    namespace, _, bare = schema.name.partition("::")
    arguments = list(schema.arguments)
    collective = namespace in ("c10d", "_c10d_functional")
    writes = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    views = any(r.alias_info is not None for r in schema.returns) and not any(writes)
    like = bare.startswith("new_") or bare.endswith("_like")
    if namespace == "c10d":
        reads, writes = _collective(bare, [a.name for a in arguments])
    else:
        reads = [not like or w for w in writes]
    return Operator(
        name=bare,
        skip=views or namespace in ("prim", "profiler") or bare in _MAKE_NOTHING or bare in _ONLY_VIEW or bare.startswith(("sym_", "is_", "_has_")),
        read=tuple(reads), written=tuple(writes), position={a.name: n for n, a in enumerate(arguments)},
        fresh=namespace != "c10d" and any(r.alias_info is None for r in schema.returns),
        copies=bare in _COPIES, collective=collective, plain=not collective and bare not in (*_COPIES, "record_stream"),
    )


def _collective(name: str, arguments: list[str]) -> tuple[list[bool], list[bool]]:
    """Schemas of collectives do not say what they write; their arguments' names do."""
    reads = [not a.startswith("output") and name != "recv_" for a in arguments]
    writes = [a.startswith("output") or (a in ("tensors", "tensor") and name != "send") for a in arguments]
    return reads, writes
