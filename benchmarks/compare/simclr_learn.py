#!/usr/bin/env python3
"""What PyTorch learns by the recipe of configs/cifar10-simclr.yaml: SimCLR on CIFAR-10, ResNet-18, evaluated by
weighted kNN (k 200, t 0.1, the training set as bank, the test set as queries) on images of several sizes.

  benchmarks/compare/simclr_learn.py --data cifar10 --epochs 100 --output benchmarks/results/simclr-cifar10-h200.jsonl

Views are made by torchvision on PIL images in worker processes, as PyTorch's users make them; only the blur is done on
the device (GaussianBlur's own sums, a sigma for each image). Both views go through the network together, as in
brim. This is about accuracy: its wall time is that of the workers."""
import argparse, json, math, os, sys, time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torchvision import transforms as T

import torch_models

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def load(folder, names):
    rows = np.concatenate([np.fromfile(os.path.join(folder, n + ".bin"), np.uint8).reshape(-1, 3073) for n in names])
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), torch.from_numpy(rows[:, 0].astype(np.int64))


class Views(torch.utils.data.Dataset):
    """One item is a whole batch: (2 n, height, width, 3) bytes, first views first."""

    def __init__(self, images, augment):
        self.images, self.augment = images, augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, batch):
        pictures = [Image.fromarray(self.images[i]) for i in batch]
        return torch.from_numpy(np.stack([np.asarray(self.augment(p)) for _ in range(2) for p in pictures]))


class Batches:
    """Indices of every step of an epoch, in an order of its own, without the last, smaller batch."""

    def __init__(self, count, batch):
        self.count, self.batch = count, batch

    def __len__(self):
        return self.count // self.batch

    def __iter__(self):
        order = torch.randperm(self.count).tolist()
        return iter([order[k * self.batch:(k + 1) * self.batch] for k in range(len(self))])


def alone(worker):
    torch.set_num_threads(1)


def blur(x, kernel, low, high, p):
    """Blurs some of the images x (n, 3, h, w), each with a sigma between low and high."""
    n, c, h, w = x.shape
    sigma = torch.empty(n, 1, device=x.device).uniform_(low, high)
    at = torch.arange(kernel, device=x.device) - kernel // 2
    taps = torch.exp(-0.5 * (at / sigma) ** 2)
    taps = taps / taps.sum(1, keepdim=True)
    none = F.one_hot(torch.tensor(kernel // 2), kernel).to(taps)
    taps = torch.where(torch.rand(n, 1, device=x.device) < p, taps, none)
    taps = taps.repeat_interleave(c, 0)
    y = F.pad(x.reshape(1, n * c, h, w), [kernel // 2] * 4, mode="reflect")
    y = F.conv2d(y, taps.view(n * c, 1, 1, kernel), groups=n * c)
    return F.conv2d(y, taps.view(n * c, 1, kernel, 1), groups=n * c).view(n, c, h, w)


def features(net, images, size, device, mean, std):
    got = []
    for part in torch.from_numpy(images).split(1000):
        x = part.to(device).permute(0, 3, 1, 2).float()
        x = F.interpolate(x, (size, size), mode="bilinear", align_corners=False).round() if size != 32 else x
        x = ((x / 255 - mean) / std).contiguous(memory_format=torch.channels_last)
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            got.append(F.normalize(net.backbone(x).float(), dim=1))
    return torch.cat(got)


def neighbours(bank, labels, queries, truth, k=200, temperature=0.1):
    right = 0
    for q, t in zip(queries.split(1000), truth.split(1000)):
        near, at = (q @ bank.T).topk(min(k, len(bank)), 1)
        votes = torch.zeros(len(q), 10, device=q.device).scatter_add_(1, labels[at], (near / temperature).exp())
        right += (votes.argmax(1) == t).sum().item()
    return right / len(queries)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder with CIFAR-10's binary files")
    p.add_argument("--name", default="GPU", help="of the device, for the records")
    p.add_argument("--device", default="cuda")
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--warmup", type=int, default=10, help="epochs")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--size", type=int, default=32, help="of the crops")
    p.add_argument("--scale", type=float, default=0.2, help="least share of the image")
    p.add_argument("--jitter", type=float, default=0.8)
    p.add_argument("--hue", type=float, default=0.2)
    p.add_argument("--gray", type=float, default=0.2)
    p.add_argument("--blur", type=float, nargs=3, default=(3, 1.0, 0.5), metavar=("KERNEL", "SIGMA", "P"))
    p.add_argument("--hidden", type=int, default=2048)
    p.add_argument("--temperature", type=float, default=0.2)
    p.add_argument("--lr", type=float, default=0.24)
    p.add_argument("--decay", type=float, default=5e-4)
    p.add_argument("--sizes", type=int, nargs="+", default=[32, 40, 48, 56], help="of the images evaluated")
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--few", type=int, help="images; tries the script itself")
    p.add_argument("--output", help="append the lines here too")
    a = p.parse_args()
    torch.manual_seed(a.seed)
    torch.backends.cudnn.benchmark = True
    images, labels = load(a.data, ["data_batch_%d" % i for i in range(1, 6)])
    tests, truth = load(a.data, ["test_batch"])
    if a.few:
        images, labels, tests, truth = images[:a.few], labels[:a.few], tests[:a.few], truth[:a.few]
    augment = T.Compose([
        T.RandomResizedCrop(a.size, scale=(a.scale, 1.0)), T.RandomHorizontalFlip(),
        T.RandomApply([T.ColorJitter(a.jitter, a.jitter, a.jitter, a.hue)], 0.8), T.RandomGrayscale(a.gray)])
    loader = torch.utils.data.DataLoader(
        Views(images, augment), batch_size=None, sampler=Batches(len(images), a.batch), num_workers=a.workers,
        pin_memory=a.device == "cuda", persistent_workers=a.workers > 0, worker_init_fn=alone)
    net = torch_models.SimCLR("cifar", a.hidden, 128, batch_norm=True)
    net = net.to(a.device).to(memory_format=torch.channels_last)
    learns = torch.compile(net) if a.device == "cuda" else net
    opt = torch.optim.SGD(net.parameters(), a.lr, momentum=0.9, weight_decay=a.decay)
    mean = torch.tensor(MEAN, device=a.device).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=a.device).view(1, 3, 1, 1)
    per, started = len(loader), time.monotonic()
    warm, total = a.warmup * per, a.epochs * per

    def rate(step):
        return a.lr * ((step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm))))

    def put(epoch, loss):
        net.eval()
        knn = {}
        for s in a.sizes:
            bank, asked = (features(net, i, s, a.device, mean, std) for i in (images, tests))
            knn[s] = neighbours(bank, labels.to(a.device), asked, truth.to(a.device))
        net.train()
        line = json.dumps(dict(
            benchmark="simclr-cifar10", who="torch", device=a.name, version=torch.__version__,
            precision="bf16" if a.device == "cuda" else "fp32",
            command="benchmarks/compare/simclr_learn.py " + " ".join(sys.argv[1:]), epoch=epoch, train_loss=loss, knn_by_size=knn,
            wall_s=round(time.monotonic() - started, 1)))
        print(line, flush=True)
        if a.output:
            with open(a.output, "a") as f:
                f.write(line + "\n")

    step = 0
    for epoch in range(1, a.epochs + 1):
        losses = torch.zeros((), device=a.device)
        for x in loader:
            x = x.to(a.device, non_blocking=True).permute(0, 3, 1, 2).float()
            if a.blur[2] > 0:
                x = blur(x, int(a.blur[0]), 0.1, a.blur[1], a.blur[2])
            x = ((x / 255 - mean) / std).contiguous(memory_format=torch.channels_last)
            for group in opt.param_groups:
                group["lr"] = rate(step)
            opt.zero_grad(set_to_none=True)
            with torch.autocast(a.device, torch.bfloat16, enabled=a.device == "cuda"):
                z = learns(x)
            loss = torch_models.ntxent(z.float(), a.temperature)
            loss.backward()
            opt.step()
            losses += loss.detach()
            step += 1
        if epoch % 25 == 0 or epoch == a.epochs:
            put(epoch, losses.item() / per)
    return 0


if __name__ == "__main__":
    sys.exit(main())
