"""Plants races on real streams, each with a correct twin, and checks that the sanitizer finds the first and passes the second.

    python tests/gpu/sanitize_check.py            # gpudoctor's sanitizer; exit 1 if anything is off
    python tests/gpu/sanitize_check.py --torch    # torch's own sanitizer on the same programs, for comparison

Needs one CUDA GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

N = 1 << 22


def long_work(x: torch.Tensor) -> torch.Tensor:
    for _ in range(20):
        x = x * 1.0001 + 0.5
    return x


def missing_wait(correct: bool) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        batch = torch.ones(N, device="cuda") * 2
    if correct:
        torch.cuda.current_stream().wait_stream(side)
    (batch + 1).sum()
    torch.cuda.synchronize()
    del batch


def wrong_order(correct: bool) -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    batch = torch.zeros(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    if not correct:
        event.record(side)
    with torch.cuda.stream(side):
        batch.add_(1)
    if correct:
        event.record(side)
    torch.cuda.current_stream().wait_event(event)
    (batch + 1).sum()


def allocator_reuse(correct: bool) -> None:
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        batch = torch.ones(N, device="cuda")
    main.wait_stream(side)
    if correct:
        batch.record_stream(main)
    used = long_work(batch)
    del batch
    with torch.cuda.stream(side):
        following = torch.full((N,), 3.0, device="cuda")
    torch.cuda.synchronize()
    del used, following


def view_overlap(correct: bool) -> None:
    side = torch.cuda.Stream()
    base = torch.zeros(4 * N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        base[: 2 * N].add_(1)
    start = 2 * N if correct else N
    base[start:].mul(2)
    torch.cuda.synchronize()


def columns(correct: bool) -> None:
    side = torch.cuda.Stream()
    base = torch.zeros(512, 512, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        base[:, :256].add_(1)
    (base[:, 256:] if correct else base[:, 200:]).mul(2)
    torch.cuda.synchronize()


def pinned_reuse(correct: bool) -> None:
    staging = torch.ones(N, pin_memory=True)
    target = torch.empty(N, device="cuda")
    copied = torch.cuda.Event()
    for step in range(3):
        target.copy_(staging, non_blocking=True)
        copied.record()
        if correct:
            copied.synchronize()
        staging.fill_(step)
    torch.cuda.synchronize()


def early_read(correct: bool) -> None:
    result = long_work(torch.ones(N, device="cuda"))
    host = torch.empty(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    if correct:
        torch.cuda.current_stream().synchronize()
    host.numpy().copy()
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()


def through_third_stream(correct: bool) -> None:
    a, b, main = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
    a.wait_stream(main)
    with torch.cuda.stream(a):
        batch = torch.ones(N, device="cuda") + 1
    if correct:
        b.wait_stream(a)
    main.wait_stream(b)
    batch.mul(2)
    torch.cuda.synchronize()


def collective(correct: bool) -> None:
    import torch.distributed as dist

    value = torch.ones(N, device="cuda")
    work = dist.all_reduce(value, async_op=True)
    if correct:
        work.wait()
    value.mul(2)
    torch.cuda.synchronize()


def backward(correct: bool) -> None:
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    layer = torch.nn.Linear(512, 512, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        batch = torch.randn(512, 512, device="cuda")
    if correct:
        main.wait_stream(side)
    batch.record_stream(main)
    layer(batch).square().mean().backward()
    torch.cuda.synchronize()


PLANTS: dict[Callable[[bool], None], str] = {
    missing_wait: "stream-missing-wait", wrong_order: "stream-wrong-order", allocator_reuse: "missing-record-stream",
    view_overlap: "stream-missing-wait", columns: "stream-missing-wait", pinned_reuse: "pinned-buffer-reused",
    early_read: "d2h-nonblocking-no-sync", through_third_stream: "stream-missing-wait", collective: "stream-missing-wait",
    backward: "stream-missing-wait",
}


def main() -> int:
    os.environ.setdefault("TORCH_NCCL_AVOID_RECORD_STREAMS", "0")
    import torch.distributed as dist

    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29555", rank=0, world_size=1, device_id=torch.device("cuda", 0))
    torch.cuda.synchronize()
    bad = check_torch() if "--torch" in sys.argv else check_ours()
    dist.destroy_process_group()
    return bad


def check_ours() -> int:
    from gpudoctor.probes.sanitize.races import users_frame
    from gpudoctor.probes.sanitize.sanitizer import Sanitizer

    sanitizer = Sanitizer()
    bad = 0
    for plant, kind in PLANTS.items():
        for correct in (False, True):
            sanitizer.races.found.clear()
            sanitizer.switch_on()
            plant(correct)
            sanitizer.switch_off()
            found = list(sanitizer.races)
            kinds = {r.kind for r in found}
            stacks = all(users_frame(r.second.site) and users_frame(r.first.site) for r in found)
            good = not found if correct else kinds == {kind} and stacks
            bad += not good
            print(f"{'ok ' if good else 'BAD'} {plant.__name__:22} {'twin' if correct else 'fault':6} {', '.join(sorted(kinds)) or '-'}")
            for race in found[:1] if good else found:
                first, second = users_frame(race.first.site), users_frame(race.second.site)
                print(f"      {race.first.op} on {race.first.stream}, then {race.second.op} on {race.second.stream}, {race.bytes} bytes\n      {first}\n      {second}")
    if sanitizer.mode.failures:
        bad += 1
        print(f"the sanitizer failed {sanitizer.mode.failures} times: {sanitizer.mode.failure}")
    print("all as expected" if not bad else f"{bad} not as expected")
    return int(bad > 0)


def check_torch() -> int:
    from torch.cuda import _sanitizer

    _sanitizer.enable_cuda_sanitizer()
    stderr, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115
    for plant in PLANTS:
        for correct in (False, True):
            try:
                plant(correct)
                found = False
            except _sanitizer.CUDASanitizerErrors:
                found = True
            torch.cuda.synchronize()
            print(f"torch {plant.__name__:22} {'twin' if correct else 'fault':6} {'found' if found else '-'}")
    sys.stderr = stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
