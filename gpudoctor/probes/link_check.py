"""Real copies on this host's cards, as JSON on standard output: `python -m gpudoctor.probes.link_check`.

Host to card and back from pinned memory with the PCIe link read meanwhile, all cards at once, and every pair
card to card, compared byte by byte with a copy through the host. Takes about a second a card and allocates
at most `_BYTES` on each.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

_BYTES = 256 << 20
_SMALLEST = 16 << 20
_REPEATS = 8


def main() -> None:
    """Print the answers as one JSON document."""
    print(json.dumps(check()))


def check() -> dict[str, Any]:
    """Measure all cards that torch sees; {"error": ...} beside the versions where there is none."""
    answer: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "archs": torch.cuda.get_arch_list()}
    if not torch.cuda.is_available():
        return answer | {"error": "torch sees no card (a build without CUDA, no driver, or CUDA_VISIBLE_DEVICES is empty)"}
    nccl = getattr(torch.cuda, "nccl", None)
    if nccl is not None and torch.distributed.is_nccl_available():
        answer["nccl"] = list(nccl.version())
    cards = [_card(i) for i in range(torch.cuda.device_count())]
    if len(cards) > 1:
        for card, rate in zip(cards, _together(), strict=True):
            card["h2d_together"] = rate
    return answer | {"cards": cards, "pairs": [_pair(a, b) for a in range(len(cards)) for b in range(len(cards)) if a != b]}


def _card(index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    answer: dict[str, Any] = {"index": index, "sm_count": properties.multi_processor_count, "uuid": _uuid(properties)}
    host, card = _buffers(index)
    if host is None or card is None:
        return answer | {"failed": "too little free memory"}
    with _LinkReader(answer["uuid"]) as reader:
        answer["h2d"] = _rate(lambda: card.copy_(host, non_blocking=True), index, host.nbytes)
        answer["d2h"] = _rate(lambda: host.copy_(card, non_blocking=True), index, host.nbytes)
    return answer | reader.best


def _buffers(index: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    free = torch.cuda.mem_get_info(index)[0]
    count = _BYTES
    while count > free // 4:
        count //= 2
    if count < _SMALLEST:
        return None, None
    return torch.empty(count, dtype=torch.uint8, pin_memory=True), torch.empty(count, dtype=torch.uint8, device=index)


def _rate(copy: Callable[[], Any], index: int, count: int) -> float:
    """The best of several timed copies [B/s], after one that warms the link up."""
    stream = torch.cuda.current_stream(index)
    best = float("inf")
    with torch.cuda.device(index):
        copy()
        stream.synchronize()
        for _ in range(_REPEATS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record(stream)
            copy()
            end.record(stream)
            end.synchronize()
            best = min(best, start.elapsed_time(end) / 1e3)
    return count / best


def _together() -> list[float | None]:
    """Host to card on all cards at once [B/s each]."""
    buffers = [_buffers(i) for i in range(torch.cuda.device_count())]
    pairs = [(host, card) for host, card in buffers if host is not None and card is not None]
    if len(pairs) < len(buffers):
        return [None] * len(buffers)
    spent: list[float] = []
    for _ in range(2):
        for i in range(len(pairs)):
            torch.cuda.synchronize(i)
        begin, spent = time.perf_counter(), []
        for host, card in pairs * _REPEATS:
            card.copy_(host, non_blocking=True)
        for i in range(len(pairs)):
            torch.cuda.synchronize(i)
            spent.append(time.perf_counter() - begin)
    return [_REPEATS * host.nbytes / seconds for (host, _), seconds in zip(pairs, spent, strict=True)]


def _pair(a: int, b: int) -> dict[str, Any]:
    """Copy a pattern from card a to card b and compare it there with one that went through the host."""
    answer: dict[str, Any] = {"device": a, "peer": b, "access": torch.cuda.can_device_access_peer(a, b)}
    answer |= {"device_uuid": _uuid(torch.cuda.get_device_properties(a)), "peer_uuid": _uuid(torch.cuda.get_device_properties(b))}
    try:
        pattern = torch.arange(_SMALLEST, dtype=torch.int32, device=a).mul_(2654435761 % (1 << 31)).add_(a * 31 + b)
        torch.cuda.synchronize(a)
        expected = pattern.cpu().to(b)
        target = torch.full_like(expected, -1)
        answer["bandwidth"] = _rate(lambda: target.copy_(pattern, non_blocking=True), b, pattern.nbytes)
        target.fill_(-1)
        torch.cuda.synchronize(b)
        target.copy_(pattern)
        torch.cuda.synchronize(a)
        torch.cuda.synchronize(b)
        answer["wrong_bytes"] = int((target.view(torch.uint8) != expected.view(torch.uint8)).sum())
        small = pattern[:1]
        begin = time.perf_counter()
        for _ in range(100):
            target[:1].copy_(small)
        torch.cuda.synchronize(b)
        answer["latency"] = (time.perf_counter() - begin) / 100
    except RuntimeError as error:
        answer["failed"] = str(error).splitlines()[0][:200]
    return answer


def _uuid(properties: Any) -> str | None:
    found = getattr(properties, "uuid", None)
    return None if found is None else (str(found) if str(found).startswith(("GPU-", "MIG-")) else f"GPU-{found}")


class _LinkReader:
    """Reads generation and width from NVML while copies run; `best` keeps the largest seen."""

    def __init__(self, uuid: str | None) -> None:
        self.best: dict[str, int] = {}
        self._uuid, self._done = uuid, threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> _LinkReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=2)

    def _read(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
            while True:
                for key, ask in (("gen_load", pynvml.nvmlDeviceGetCurrPcieLinkGeneration), ("width_load", pynvml.nvmlDeviceGetCurrPcieLinkWidth)):
                    self.best[key] = max(self.best.get(key, 0), ask(handle))
                if self._done.wait(0.005):
                    return
        except Exception:  # a link that cannot be read stays unknown
            return


if __name__ == "__main__":
    main()
