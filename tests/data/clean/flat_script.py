import math
import os
import time
from contextlib import nullcontext

import numpy as np
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

from network import Net

log_interval, eval_interval, eval_iters = 10, 200, 20
accumulation, batch_size, block = 40, 12, 256
grad_clip = 1.0
dtype = "bfloat16"
compile_it = True
device = "cuda"

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="nccl")
    rank = int(os.environ["RANK"])
    local = int(os.environ["LOCAL_RANK"])
    world = int(os.environ["WORLD_SIZE"])
    device = f"cuda:{local}"
    torch.cuda.set_device(device)
    master = rank == 0
    offset = rank
    assert accumulation % world == 0
    accumulation //= world
else:
    master, offset, world = True, 0, 1

torch.manual_seed(1337 + offset)
kind = "cuda" if "cuda" in device else "cpu"
ctx = nullcontext() if kind == "cpu" else torch.amp.autocast(device_type=kind, dtype=torch.bfloat16)
tokens = np.memmap("train.bin", dtype=np.uint16, mode="r")


def get_batch(split):
    at = torch.randint(len(tokens) - block, (batch_size,))
    x = torch.stack([torch.from_numpy(tokens[i:i + block].astype(np.int64)) for i in at])
    y = torch.stack([torch.from_numpy(tokens[i + 1:i + 1 + block].astype(np.int64)) for i in at])
    if kind == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


model = Net()
step, best = 0, 1e9
if os.path.exists("ckpt.pt"):
    checkpoint = torch.load("ckpt.pt", map_location=device)
    model.load_state_dict(checkpoint["model"])
    step = checkpoint["step"]
model.to(device)
scaler = torch.amp.GradScaler("cuda", enabled=(dtype == "float16"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if compile_it:
    model = torch.compile(model)
if ddp:
    model = DDP(model, device_ids=[local])


@torch.no_grad()
def estimate():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            with ctx:
                _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def rate(it):
    return 1e-3 * 0.5 * (1.0 + math.cos(math.pi * min(1.0, it / 1000)))


X, Y = get_batch("train")
raw = model.module if ddp else model
start = time.time()
while True:
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    if step % eval_interval == 0 and master:
        losses = estimate()
        print(f"step {step}: train {losses['train']:.4f}, val {losses['val']:.4f}")
        if losses["val"] < best:
            best = losses["val"]
            torch.save({"model": raw.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ckpt.pt")
    for micro in range(accumulation):
        if ddp:
            model.require_backward_grad_sync = micro == accumulation - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / accumulation
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step % log_interval == 0 and master:
        print(f"step {step}: loss {loss.item() * accumulation:.4f}, {time.time() - start:.2f} s")
    step += 1
    if step > 1000:
        break
if ddp:
    destroy_process_group()
