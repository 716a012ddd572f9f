"""Launch the kernels on PyTorch's tensors and streams; nothing here waits for the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gpudoctor.kernels.compile import cubin, cuda_core
from gpudoctor.kernels.layout import dense
from gpudoctor.kernels.plan import chunk_of, head_of, table_of, tiles_of
from gpudoctor.kernels.reference import BINS, SCALARS, key_of
from gpudoctor.kernels.variant import MAX_INPUTS, Entry, Level, Variant, tuned

_ELEMENTS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_FINAL_THREADS, _FINAL_PARTS = 256, 9
_SLOT_BYTES = len(SCALARS) * 8 + BINS * 4

Copies = Sequence[Sequence[torch.Tensor]]
"""Tensor t's copies at [t]: to be added element by element."""


class Launcher:
    """One aggregation, ready to be launched again and again on the same buffers.

    Aggregates tensor t's copies `inputs[t]` into `outs[t]` (None: statistics only). All tensors are dense, on one CUDA
    device and of one dtype (float32, bfloat16, float16); copies of one tensor share its shape. `deterministic` gives a single
    buffer's floating-point statistics the same bits each time, for some percent of speed; several tensors always do, and the
    aggregate itself and the counts do always. With `device`, the pass runs there and copies may lie on other cards that it can
    read (see `peer`). The launcher keeps addresses, not tensors: the caller keeps those alive.
    Raises ValueError for buffers that do not fit together.
    """

    def __init__(self, inputs: Copies, outs: Sequence[torch.Tensor] | None, level: Level = Level.histogram, deterministic: bool = False,
                 shape: Variant | None = None, chunk: int = 0, device: torch.device | None = None) -> None:
        _check(inputs, outs, device)
        first = inputs[0][0]
        self.device = device or first.device
        self._index = int(self.device.index)
        self.tensors = len(inputs)
        variant = shape or tuned(Variant(Entry.flat if self.tensors == 1 else Entry.many, _ELEMENTS[first.dtype], len(inputs[0]), outs is not None, level))
        self.level = variant.level
        rows = [(tuple(t.data_ptr() for t in copies), outs[n].data_ptr() if outs else 0, copies[0].numel()) for n, copies in enumerate(inputs)]
        self._in_order = variant.entry is Entry.flat and not deterministic
        if variant.entry is Entry.many:
            table, first_tile = table_of(rows, variant)
            tiles = first_tile[-1]
            self._sent = torch.tensor(first_tile + table, dtype=torch.int64).pin_memory().to(self.device, non_blocking=True)
            self._first_tile = self._sent.data_ptr()
            self._ready = torch.cuda.Event()
            self._ready.record(torch.cuda.current_stream(self.device))
            where: tuple[Any, ...] = (self._first_tile + 8 * len(first_tile), self._first_tile, np.int32(self.tensors))
        else:
            (pointers, out, numel), = rows
            head = head_of([*pointers, *([out] if out else [])], numel, 16 // variant.lanes)
            tiles, self._first_tile = tiles_of(numel, head, variant), 0
            where = (*pointers, *[0] * (MAX_INPUTS - len(pointers)), out, np.int64(numel), np.int32(head), np.int64(tiles))
        self._chunk = np.int32(chunk or chunk_of(tiles))
        self._where = (*where, self._chunk)
        self._blocks = min(tiles, resident_blocks(variant, self._index)) if self._in_order else -(-tiles // int(self._chunk))
        self._counters: dict[int, torch.Tensor] = {}
        self._home = int(torch._C._cuda_getCurrentRawStream(self._index))
        if self._blocks:
            core = cuda_core()
            with torch.cuda.device(self.device):
                self._kernel, self._finalise = kernel(variant, self._index), kernel(Variant(Entry.finalise), self._index)
            self._config = core.LaunchConfig(grid=self._blocks, block=variant.block)
            self._final = core.LaunchConfig(grid=(self.tensors, _FINAL_PARTS if self.level is Level.histogram else 1), block=_FINAL_THREADS)

    def __call__(self, scale: float = 1.0, factor: torch.Tensor | None = None, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch on the device's current stream: `scale` times the sum.

        `factor` is one float32 on the device that multiplies `scale`. Returns float64 [T, 6] (see SCALARS) and int64
        [T, 64], both on the device; at level plain both have no rows, at level statistics the second has none.
        """
        if factor is not None and (factor.dtype is not torch.float32 or factor.numel() != 1 or factor.device != self.device):
            raise ValueError("factor must be one float32 on the gradients' device")
        tracked, counted = self.level > Level.plain, self.level is Level.histogram
        scalars = torch.empty((self.tensors if tracked else 0, len(SCALARS)), dtype=torch.float64, device=self.device)
        bins = torch.empty((self.tensors if counted else 0, BINS), dtype=torch.int64, device=self.device)
        if not self._blocks:
            return scalars.zero_(), bins.zero_()
        stream = int(torch._C._cuda_getCurrentRawStream(self._index))
        if self._first_tile and stream != self._home:
            current = torch.cuda.current_stream(self.device)
            self._ready.wait(current)
            self._sent.record_stream(current)
        if torch.cuda.current_device() == self._index:
            self._launch(stream, scale, factor, key_of(seed), scalars, bins)
        else:
            with torch.cuda.device(self.device):
                self._launch(stream, scale, factor, key_of(seed), scalars, bins)
        return scalars, bins

    def _launch(self, stream: int, scale: float, factor: torch.Tensor | None, key: int, scalars: torch.Tensor, bins: torch.Tensor) -> None:
        core, on = cuda_core(), _stream(self._index, stream)
        slots = self._blocks + self.tensors
        partials = torch.empty(slots * _SLOT_BYTES, dtype=torch.uint8, device=self.device)
        part_scalars, part_bins = partials.data_ptr(), partials.data_ptr() + slots * len(SCALARS) * 8
        counter = self._counter(stream) if self._in_order else None
        at = counter.data_ptr() if counter is not None else 0
        core.launch(on, self._config, self._kernel, *self._where, *((at,) if not self._first_tile else ()), np.float32(scale),
                    factor.data_ptr() if factor is not None else 0, np.uint32(key), part_scalars, part_bins)
        if self.level > Level.plain:
            core.launch(on, self._final, self._finalise, part_scalars, part_bins, self._first_tile, np.int64(self._blocks), self._chunk, at,
                        scalars.data_ptr(), bins.data_ptr())
        elif counter is not None:
            counter.zero_()

    def _counter(self, handle: int) -> torch.Tensor:
        """What hands out tiles on this stream; the second pass leaves it at zero."""
        if handle not in self._counters:
            self._counters[handle] = torch.zeros(1, dtype=torch.int32, device=self.device)
        return self._counters[handle]


def run(inputs: Copies, outs: Sequence[torch.Tensor] | None, scale: float = 1.0, factor: torch.Tensor | None = None, seed: int = 0,
        level: Level = Level.histogram, deterministic: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """One aggregation as Launcher describes it; gradients keep their addresses from step to step, so launchers are kept too."""
    key = (level, deterministic, inputs[0][0].dtype, inputs[0][0].device, len(inputs[0]), outs is not None,
           *(value for copies in inputs for t in copies for value in (t.data_ptr(), t.numel())), *(t.data_ptr() for t in outs or ()))
    launcher = _kept.pop(key, None) or Launcher(inputs, outs, level, deterministic)
    _kept[key] = launcher  # the newest last
    if len(_kept) > 64:
        _kept.pop(next(iter(_kept)))
    return launcher(scale, factor, seed)


_kept: dict[Any, Launcher] = {}


def kernel(variant: Variant, device: int) -> Any:
    """The loaded kernel of `variant` for CUDA device `device`."""
    major, minor = torch.cuda.get_device_capability(device)
    return _load(variant, f"sm_{major}{minor}")


@functools.cache
def _load(variant: Variant, arch: str) -> Any:
    return cuda_core().ObjectCode.from_cubin(cubin(variant, arch)).get_kernel(variant.symbol)


@functools.cache
def resident_blocks(variant: Variant, device: int) -> int:
    """Blocks that stay on the card while tiles are handed out."""
    multiprocessors: int = torch.cuda.get_device_properties(device).multi_processor_count
    return multiprocessors * variant.resident


@functools.lru_cache(maxsize=256)
def _stream(device: int, handle: int) -> Any:
    core_device = cuda_core().Device(device)
    core_device.set_current()
    return core_device.create_stream(_Handle(handle))


class _Handle:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _check(inputs: Copies, outs: Sequence[torch.Tensor] | None, device: torch.device | None) -> None:
    first = inputs[0][0]
    if first.dtype not in _ELEMENTS:
        raise ValueError(f"gradients must be float32, bfloat16 or float16, not {first.dtype}")
    if not 1 <= len(inputs[0]) <= MAX_INPUTS:
        raise ValueError(f"one to {MAX_INPUTS} buffers can be aggregated in one pass, not {len(inputs[0])}")
    for n, copies in enumerate(inputs):
        if len(copies) != len(inputs[0]):
            raise ValueError("every tensor needs the same number of copies")
        for tensor in (*copies, *([outs[n]] if outs else [])):
            if tensor.dtype is not first.dtype or not tensor.is_cuda or (device is None and tensor.device != first.device):
                raise ValueError("all buffers must share one dtype and one CUDA device")
            if tensor.shape != copies[0].shape or tensor.stride() != copies[0].stride():
                raise ValueError("copies of one tensor must share its shape and strides")
            if not dense(tensor):
                raise ValueError("buffers must be dense: call .contiguous() first")
