import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger(__name__)


@dataclass
class Settings:
    epochs: int = 10
    batch: int = 64
    every: int = 50
    accumulate: int = 4
    amp: bool = True
    clip: float = 1.0
    path: str = "snapshot.pt"


class Prefetcher:
    """Copies the next batch on a side stream."""

    def __init__(self, loader, device):
        self.loader, self.device = loader, device
        self.stream = torch.cuda.Stream(device)

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        first = True
        for nxt in self.loader:
            with torch.cuda.stream(self.stream):
                nxt = nxt.to(device=self.device, non_blocking=True)
            if not first:
                yield batch
            else:
                first = False
            torch.cuda.current_stream(device=self.device).wait_stream(self.stream)
            batch = nxt
            batch.record_stream(torch.cuda.current_stream(device=self.device))
        yield batch


class Trainer:
    def __init__(self, settings, model, train_set, test_set):
        self.settings = settings
        self.local = int(os.environ["LOCAL_RANK"])
        self.rank = int(os.environ["RANK"])
        self.train_loader = self._loader(train_set, True)
        self.test_loader = self._loader(test_set, False)
        self.model = model.to(self.local)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.scaler = torch.amp.GradScaler("cuda") if settings.amp else None
        self.epoch = 0
        if os.path.exists(settings.path):
            self._load()
        self.model = DistributedDataParallel(self.model, device_ids=[self.local])

    def _loader(self, data: Dataset, shuffle):
        loader = DataLoader(data, batch_size=self.settings.batch, pin_memory=True, shuffle=False, num_workers=4, sampler=DistributedSampler(data, shuffle=shuffle))
        return Prefetcher(loader, torch.device("cuda", self.local))

    def _load(self):
        snapshot = torch.load(self.settings.path, map_location="cpu")
        self.model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.epoch = snapshot["epoch"]

    def _backward(self, batch, last):
        def run():
            with torch.autocast("cuda", dtype=torch.float16, enabled=self.settings.amp):
                loss = self.model(batch).mean() / self.settings.accumulate
            if self.scaler is not None:
                self.scaler.scale(loss).backward()
            else:
                loss.backward()
            return loss.detach()

        if last:
            return run()
        with self.model.no_sync():
            return run()

    def _step(self):
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _epoch(self, epoch, loader, train):
        if train:
            loader.loader.sampler.set_epoch(epoch)
        total = torch.zeros((), device=f"cuda:{self.local}")
        for i, batch in enumerate(loader):
            if train:
                last = (i + 1) % self.settings.accumulate == 0
                total += self._backward(batch, last)
                if last:
                    self._step()
            else:
                with torch.no_grad():
                    total += self.model(batch).mean()
            if i % self.settings.every == 0:
                log.info("epoch %d step %d loss %.5f", epoch, i, total.item() / (i + 1))
        dist.all_reduce(total)
        return total / dist.get_world_size()

    def _save(self, epoch):
        raw = self.model.module if hasattr(self.model, "module") else self.model
        torch.save({"model": raw.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch}, self.settings.path)

    def train(self):
        for epoch in range(self.epoch, self.settings.epochs):
            self.model.train()
            self._epoch(epoch, self.train_loader, True)
            if self.local == 0 and epoch % 3 == 0:
                self._save(epoch)
            self.model.eval()
            self._epoch(epoch, self.test_loader, False)
            dist.barrier()


def main(settings, model, train_set, test_set):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Trainer(settings, model, train_set, test_set).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    from project import build

    main(Settings(), *build())
