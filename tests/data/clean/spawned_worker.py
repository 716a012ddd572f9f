import argparse
import os
import shutil

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.utils.data
import torchvision.datasets as datasets
import torchvision.models as models
import torchvision.transforms as transforms
from torch.optim.lr_scheduler import StepLR

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("--batch-size", default=256, type=int)
parser.add_argument("--workers", default=4, type=int)
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--gpu", default=None, type=int)
parser.add_argument("--resume", default="")
parser.add_argument("--print-freq", default=10, type=int)
parser.add_argument("--multiprocessing-distributed", action="store_true")
best = 0


def main():
    args = parser.parse_args()
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 1
    if args.multiprocessing_distributed:
        args.world_size = gpus * args.world_size
        mp.spawn(main_worker, nprocs=gpus, args=(gpus, args))
    else:
        main_worker(args.gpu, gpus, args)


def main_worker(gpu, gpus, args):
    global best
    args.gpu = gpu
    if args.distributed:
        if args.multiprocessing_distributed:
            args.rank = args.rank * gpus + gpu
        dist.init_process_group(backend="nccl", init_method="env://", world_size=args.world_size, rank=args.rank)
    model = models.resnet50()
    if args.distributed:
        if args.gpu is not None:
            torch.cuda.set_device(args.gpu)
            model.cuda(args.gpu)
            args.batch_size = int(args.batch_size / gpus)
            args.workers = int((args.workers + gpus - 1) / gpus)
            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        else:
            model.cuda()
            model = torch.nn.parallel.DistributedDataParallel(model)
    elif args.gpu is not None:
        torch.cuda.set_device(args.gpu)
        model = model.cuda(args.gpu)
    device = torch.device(f"cuda:{args.gpu}") if torch.cuda.is_available() and args.gpu is not None else torch.device("cuda")
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    start = 0
    if args.resume:
        if args.gpu is None:
            checkpoint = torch.load(args.resume, map_location="cpu")
        else:
            checkpoint = torch.load(args.resume, map_location=f"cuda:{args.gpu}")
        start = checkpoint["epoch"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    train_set = datasets.ImageFolder(os.path.join(args.data, "train"), transforms.ToTensor())
    val_set = datasets.ImageFolder(os.path.join(args.data, "val"), transforms.ToTensor())
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_set)
        val_sampler = torch.utils.data.distributed.DistributedSampler(val_set, shuffle=False, drop_last=True)
    else:
        train_sampler = val_sampler = None
    train_loader = torch.utils.data.DataLoader(train_set, batch_size=args.batch_size, shuffle=(train_sampler is None), num_workers=args.workers,
                                               pin_memory=True, sampler=train_sampler)
    val_loader = torch.utils.data.DataLoader(val_set, batch_size=args.batch_size, shuffle=False, num_workers=args.workers, pin_memory=True, sampler=val_sampler)
    for epoch in range(start, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, device, args)
        acc = validate(val_loader, model, criterion, device, args)
        scheduler.step()
        is_best = acc > best
        best = max(acc, best)
        if not args.multiprocessing_distributed or (args.multiprocessing_distributed and args.rank % gpus == 0):
            save({"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, is_best)


def train(loader, model, criterion, optimizer, epoch, device, args):
    losses = Meter()
    model.train()
    for i, (images, target) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        if i % args.print_freq == 0:
            losses.update(loss.item(), images.size(0))
            print(epoch, i, losses.avg)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(loader, model, criterion, device, args):
    top = Meter()
    model.eval()
    with torch.no_grad():
        for i, (images, target) in enumerate(loader):
            output = model(images.to(device, non_blocking=True))
            top.update((output.argmax(1) == target.to(device)).float().mean().item(), images.size(0))
    if args.distributed:
        top.all_reduce()
    return top.avg


def save(state, is_best, name="checkpoint.pth.tar"):
    torch.save(state, name)
    if is_best:
        shutil.copyfile(name, "best.pth.tar")


class Meter:
    def __init__(self):
        self.sum = self.count = self.avg = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device="cuda")
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        self.avg = self.sum / self.count


if __name__ == "__main__":
    main()
