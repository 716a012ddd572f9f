"""Read pickles of plain data (dicts, lists, texts, numbers) without ever making an object of a class.

Lists under chosen keys of the outermost dict are handed over in batches and forgotten, so that a file of
gigabytes needs little memory. Everything that a stranger could use to run code or to exhaust memory is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from gpudoctor.errors import InputError

CHUNK = 1 << 22
MAX_TEXT = 1 << 24
MAX_STACK = 2_000_000
MAX_DEPTH = 64
MAX_MEMO = 100_000_000
MAX_LIVE = 8_000_000
MAX_TEXT_BYTES = 1 << 29

Take = Callable[[int, list[Any]], None]
Condense = Callable[[Any], Any]

_SLACK = 600
_CLASSES = {
    0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x62: "BUILD", 0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
    0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x50: "PERSID", 0x51: "BINPERSID", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}


class _Gone:
    """What the memo holds in place of an object that was handed over."""


GONE = _Gone()


class Stream:
    """Stands on the stack for a list whose items are handed over instead of kept."""

    __slots__ = ("children", "index", "nested", "take")

    def __init__(self, take: Take, index: int, nested: bool) -> None:
        self.take, self.index, self.nested, self.children = take, index, nested, 0


class PlainUnpickler:
    """One pass over one pickle.

    `streams` maps a key of the outermost dict to `(take, nested)`: `take(index, items)` is called with batches of the
    list's items; with `nested` the list holds lists, and their items are handed over with their list's index.
    `condense(container)` says what later references to a container of a batch shall see; GONE forgets it.
    """

    def __init__(self, file: BinaryIO, name: str, streams: Mapping[str, tuple[Take, bool]] | None = None, condense: Condense | None = None) -> None:
        self._file, self._name = file, name
        self._streams, self._condense = dict(streams or {}), condense or (lambda container: container)
        self._buffer, self._position, self._end = b"", 0, False
        self.read_bytes = 0

    def load(self) -> Any:
        """Return the outermost object, without what was handed over; InputError if it is no plain pickle."""
        try:
            return self._run()
        except (IndexError, TypeError, KeyError, struct.error, UnicodeDecodeError, ValueError, OverflowError):
            raise InputError(f"{self._name}: damaged or truncated pickle after byte {self.read_bytes - len(self._buffer) + self._position}") from None

    def _refill(self) -> bytes:
        rest = self._buffer[self._position:]
        more = self._file.read(CHUNK)
        self._end = not more
        self.read_bytes += len(more)
        self._buffer, self._position = rest + more, 0
        return self._buffer

    def _bytes(self, count: int) -> bytes:
        """The next `count` bytes, which may reach beyond the buffer."""
        if count > MAX_TEXT:
            self._refuse(f"a text of {count} bytes")
        while len(self._buffer) - self._position < count:
            if self._end:
                raise IndexError
            self._refill()
        start = self._position
        self._position = start + count
        return self._buffer[start:start + count]

    def _refuse(self, what: str) -> None:
        raise InputError(f"{self._name}: refused: it holds {what}")

    def _run(self) -> Any:
        stack: list[Any] = []
        marks: list[list[Any]] = []
        memo: list[Any] = []
        push = stack.append
        remember = memo.append
        live = texts = done = 0
        streams = self._streams
        buffer, position = self._refill(), 0
        limit = len(buffer) - _SLACK
        from_bytes, unpack = int.from_bytes, struct.unpack_from
        while True:
            if position > limit and not self._end:
                self._position = position
                if live > MAX_LIVE or len(memo) > MAX_MEMO or len(stack) > MAX_STACK or texts > MAX_TEXT_BYTES:
                    self._refuse("more objects than the dump of an allocator or a recorder would")
                buffer, position = self._refill(), 0
                limit = len(buffer) - _SLACK
            op = buffer[position]
            position += 1
            if op == 0x68:  # BINGET
                push(memo[buffer[position]])
                position += 1
            elif op == 0x94:  # MEMOIZE
                remember(stack[-1])
            elif op == 0x6A:  # LONG_BINGET
                push(memo[from_bytes(buffer[position:position + 4], "little")])
                position += 4
            elif op == 0x4B:  # BININT1
                push(buffer[position])
                position += 1
            elif op == 0x4D:  # BININT2
                push(buffer[position] | buffer[position + 1] << 8)
                position += 2
            elif op == 0x28:  # MARK
                marks.append(stack)
                stack = []
                push = stack.append
                if len(marks) > MAX_DEPTH:
                    self._refuse("data nested too deeply")
            elif op == 0x7D:  # EMPTY_DICT
                push({})
                live += 1
            elif op == 0x75:  # SETITEMS
                items = stack
                stack = marks.pop()
                push = stack.append
                target = stack[-1]
                if type(target) is not dict:
                    raise TypeError
                target.update(zip(items[::2], items[1::2], strict=True))
            elif op == 0x8C:  # SHORT_BINUNICODE
                size = buffer[position]
                push(buffer[position + 1:position + 1 + size].decode("utf-8", "surrogatepass"))
                position += 1 + size
                texts += size + 64
            elif op == 0x8A:  # LONG1
                size = buffer[position]
                push(from_bytes(buffer[position + 1:position + 1 + size], "little", signed=True))
                position += 1 + size
            elif op == 0x4A:  # BININT
                push(unpack("<i", buffer, position)[0])
                position += 4
            elif op == 0x5D:  # EMPTY_LIST
                live += 1
                stream = _stream(streams, stack, marks) if len(marks) <= 3 and streams else None
                if stream is None:
                    push([])
                else:
                    push(stream)
                    done = len(memo) + 1
            elif op in (0x65, 0x61):  # APPENDS, APPEND
                if op == 0x65:
                    items = stack
                    stack = marks.pop()
                    push = stack.append
                else:
                    items = [stack.pop()]
                target = stack[-1]
                if type(target) is list:
                    target.extend(items)
                elif type(target) is Stream:
                    if not target.nested:
                        target.take(target.index, items)
                        live -= self._forget(memo, done)
                        done = len(memo)
                else:
                    raise TypeError
            elif op == 0x89:
                push(False)
            elif op == 0x88:
                push(True)
            elif op == 0x4E:
                push(None)
            elif op == 0x86:  # TUPLE2
                stack[-2:] = [(stack[-2], stack[-1])]
            elif op == 0x85:  # TUPLE1
                stack[-1] = (stack[-1],)
            elif op == 0x87:  # TUPLE3
                stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
            elif op == 0x74 or op == 0x6C:  # TUPLE, LIST
                items = stack
                stack = marks.pop()
                push = stack.append
                push(tuple(items) if op == 0x74 else items)
                live += 1
            elif op == 0x29:
                push(())
            elif op == 0x47:  # BINFLOAT
                push(unpack(">d", buffer, position)[0])
                position += 8
            elif op == 0x73:  # SETITEM
                value = stack.pop()
                key = stack.pop()
                if type(stack[-1]) is not dict:
                    raise TypeError
                stack[-1][key] = value
            elif op == 0x71 or op == 0x72:  # BINPUT, LONG_BINPUT
                width = 1 if op == 0x71 else 4
                index = from_bytes(buffer[position:position + width], "little")
                position += width
                if index == len(memo):
                    remember(stack[-1])
                else:
                    memo[index] = stack[-1]
            elif op in (0x58, 0x8D, 0x8E, 0x42, 0x54, 0x43, 0x8B):  # long texts, bytes and integers
                width = 1 if op == 0x43 else 8 if op in (0x8D, 0x8E) else 4
                size = from_bytes(buffer[position:position + width], "little")
                self._position = position + width
                data = self._bytes(size)
                buffer, position, limit = self._buffer, self._position, len(self._buffer) - _SLACK
                texts += size + 64
                if op == 0x8B:
                    if size > 64:
                        self._refuse(f"an integer of {size} bytes")
                    push(from_bytes(data, "little", signed=True))
                else:
                    push(data.decode("utf-8", "surrogatepass") if op in (0x58, 0x8D) else data)
            elif op == 0x80:  # PROTO
                position += 1
            elif op == 0x95:  # FRAME
                position += 8
            elif op == 0x2E:  # STOP
                return stack[-1]
            elif op == 0x30:  # POP
                stack.pop()
            elif op in _CLASSES:
                self._refuse(f"code to run (pickle opcode {_CLASSES[op]}), and only plain data is read")
            else:
                raise ValueError

    def _forget(self, memo: list[Any], start: int) -> int:
        """Condense the containers remembered since `start`; return how many are gone."""
        gone = 0
        condense = self._condense
        for index in range(start, len(memo)):
            kept = memo[index]
            if type(kept) is dict or type(kept) is list:
                memo[index] = condense(kept)
                gone += memo[index] is not kept
        return gone


def _stream(streams: Mapping[str, tuple[Take, bool]], stack: list[Any], marks: list[list[Any]]) -> Stream | None:
    above = stack[-1] if stack else marks[-1][-1] if marks and marks[-1] else None
    if type(above) is Stream and above.nested:
        above.children += 1
        return Stream(above.take, above.children - 1, False)
    if type(above) is str and above in streams and len(marks) <= 1:
        take, nested = streams[above]
        return Stream(take, 0, nested)
    return None


def load_plain(file: BinaryIO, name: str) -> Any:
    """Read a small pickle of plain data whole."""
    return PlainUnpickler(file, name).load()
