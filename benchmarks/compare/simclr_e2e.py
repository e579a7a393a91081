#!/usr/bin/env python3
"""SimCLR with ResNet-18 on 96 x 96 images in bf16, end to end: `brim train` with the dataset on the GPU
(two views of each sample, every view with draws of its own) beside PyTorch with torchvision v2 in 16 workers.

  benchmarks/compare/simclr_e2e.py --python /path/to/python3 --output benchmarks/results/NAME.jsonl

Crop, flip, colour jitter, grayscale, blur of 9 taps: the same stages with the same strengths on both sides.
Limits: brim's pairs/s at least 15 x PyTorch's; augmentation at most 10 % of the step at batch 1024. Its share
is (t - t0) / t, where t0 is the step with two views and center_crop alone, which copies; both from log
intervals that hold only steps. brim's pairs/s are those of the whole run, checkpoints among them.
Images are made by the script in STL-10's layout. Exit status 1 when a limit is missed."""
import argparse, json, os, shutil, subprocess, sys, tempfile, time

import common, e2e

MODEL = "simclr(backbone=resnet18(stem=imagenet), hidden=512, dim=128)"
JITTER = dict(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
AUGMENT = ("views(views=2) | random_resized_crop(size=96) | random_flip | color_jitter(%s, p=0.8) | random_grayscale(p=0.2)"
           " | gaussian_blur(kernel=9, p=1.0)" % ", ".join("%s=%g" % item for item in JITTER.items()))
PLAIN = "views(views=2) | center_crop(size=96)"
TIMES, SHARE, SHARE_BATCH = 15.0, 0.10, 1024


# ---- PyTorch, in a process of its own

def torch_child(a):
    import numpy as np
    import torch, torchvision
    from torchvision.transforms import v2
    import torch_models
    torch.backends.cudnn.benchmark = True
    device = a.torch_device
    images = torch.from_numpy(np.fromfile(os.path.join(a.folder, "unlabeled_X.bin"), np.uint8).reshape(-1, 3, 96, 96))
    augment = v2.Compose([
        v2.RandomResizedCrop(96, antialias=True), v2.RandomHorizontalFlip(), v2.RandomApply([v2.ColorJitter(**JITTER)], 0.8),
        v2.RandomGrayscale(0.2), v2.GaussianBlur(9), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.44, 0.43, 0.39], [0.27, 0.26, 0.27])])

    class Views(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            return augment(images[i]), augment(images[i])

    model = torch_models.SimCLR("imagenet", 512, 128).to(device).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, **(dict(fused=True) if device == "cuda" else {}))

    def step(x1, x2):
        x = torch.cat([x1.to(device, non_blocking=True), x2.to(device, non_blocking=True)])
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=a.precision == "bf16"):
            z = model(x.to(memory_format=torch.channels_last))
        torch_models.ntxent(z.float()).backward()
        opt.step()

    rate = e2e.torch_rate(Views(), step, a.batch, a.workers, a.torch_seconds, device, lead=4)
    print(json.dumps(dict(rate, version="PyTorch %s, torchvision %s" % (torch.__version__, torchvision.__version__))),
          flush=True)


def run_torch(a):
    argv = [a.python, os.path.abspath(__file__), "--torch-child", "--folder", a.folder, "--batch", str(a.torch_batch),
            "--workers", str(a.workers), "--torch-seconds", str(a.torch_seconds), "--torch-device", a.torch_device,
            "--precision", a.precision]
    r = common.run_child(argv, a.torch_total)
    return dict(r, who="torch", batch=a.torch_batch, workers=a.workers, transform="torchvision v2")


# ---- brim

def run_brim(a, batch, transform, limit, scratch):
    argv = [a.brim, "train", "dataset=stl10(split=unlabeled)", "data.path=" + a.folder, "model=" + MODEL, "loss=ntxent",
            "optimizer=sgd(lr=0.1, momentum=0.9)", "transform=" + transform, "data.batch_size=%d" % batch,
            "data.cache=" + a.cache, "training.precision=" + a.precision, "--device", a.device]
    folder = tempfile.mkdtemp(dir=scratch)
    rows = a.images // batch * batch
    r = e2e.brim_train(argv, folder, rows, batch, 1, seconds=a.brim_seconds, limit=limit)
    shutil.rmtree(folder, ignore_errors=True)
    return dict(r, who="brim", batch=batch, transform=transform, cache=a.cache)


def run_all_brim(a, emit):
    """(batch, augmented) -> record"""
    deadline, got = time.monotonic() + a.brim_total, {}
    with tempfile.TemporaryDirectory(dir=a.run_folder) as scratch:
        for batch in a.batches:
            for transform in (AUGMENT, PLAIN):
                left = deadline - time.monotonic()
                r = (run_brim(a, batch, transform, min(left, a.limit), scratch) if left > 4 else
                     dict(who="brim", batch=batch, transform=transform, failure="left out: no time left"))
                got[batch, transform == AUGMENT] = r
                emit(r)
    return got


def evaluate(a, brim, torch):
    missed, summary = 0, []
    theirs = torch.get("samples_per_s") if torch else None
    for batch in a.batches:
        full, plain = brim.get((batch, True), {}), brim.get((batch, False), {})
        mine, t, t0 = full.get("samples_per_s"), full.get("step_samples_per_s"), plain.get("step_samples_per_s")
        ratio = mine / theirs if mine and theirs else None
        share = 1 - t / t0 if t and t0 else None
        row = dict(batch=batch, ratio=ratio, wanted_ratio=TIMES, augmentation_share=share,
                   step_ms=batch / t * 1e3 if t else None, plain_step_ms=batch / t0 * 1e3 if t0 else None)
        good = ratio is not None and ratio >= TIMES
        if batch == SHARE_BATCH:
            row["wanted_share"] = SHARE
            good = good and share is not None and share <= SHARE
        row["reached"] = good
        missed += not good
        summary.append(row)
        print("batch %d: brim %s, PyTorch %s pairs/s, %s x (wanted %g); augmentation %s %% of the step%s: %s" % (
            batch, common.show(mine), common.show(theirs), common.show(ratio, "%.1f"), TIMES,
            common.show(100 * share if share is not None else None, "%.1f"),
            " (wanted %g)" % (100 * SHARE) if batch == SHARE_BATCH else "", "reached" if good else "MISSED"))
    return missed, summary


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default="build/bin/brim")
    p.add_argument("--python", default=os.environ.get("BRIM_TORCH_PYTHON", sys.executable), help="with torch, torchvision, numpy")
    p.add_argument("--device", default="cuda", help="brim's")
    p.add_argument("--torch-device", default="cuda")
    p.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    p.add_argument("--cache", default="gpu", help="brim's: where the dataset lies")
    p.add_argument("--images", type=int, default=32768, help="28 KB each")
    p.add_argument("--folder", default="/tmp/brim-stl10", help="of the images; made when they are not there")
    p.add_argument("--batches", type=int, nargs="+", default=[1024, 512], help="brim's")
    p.add_argument("--torch-batch", type=int, default=512)
    p.add_argument("--workers", type=int, default=16, help="PyTorch's")
    p.add_argument("--run-folder", default="/dev/shm" if os.path.isdir("/dev/shm") else None,
                   help="of brim's logs and checkpoints: in memory, so that no disk is measured")
    p.add_argument("--torch-seconds", type=float, default=15)
    p.add_argument("--torch-total", type=float, default=60)
    p.add_argument("--brim-seconds", type=float, default=4)
    p.add_argument("--brim-total", type=float, default=60)
    p.add_argument("--limit", type=float, default=25, help="seconds of one process of brim")
    p.add_argument("--no-torch", action="store_true")
    p.add_argument("--no-brim", action="store_true")
    p.add_argument("--output")
    p.add_argument("--torch-child", action="store_true")
    p.add_argument("--batch", type=int, default=512, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_child:
        return torch_child(a)
    import data_files
    a.brim, records = os.path.abspath(a.brim), []
    data_files.make_stl10(a.folder, a.images)
    data_files.warm(a.folder)
    machine = dict(benchmark="simclr_e2e", cpu=common.cpu_name(), cores=len(os.sched_getaffinity(0)), device=a.device,
                   images=a.images, precision=a.precision, script="benchmarks/compare/simclr_e2e.py --images %d" % a.images)

    def emit(r):
        records.append(dict(machine, **r))
        print("%-6s batch %4d  %-14s %s" % (
            r["who"], r["batch"], "plain" if r["transform"] == PLAIN else "augmented", r.get("failure") or
            "%.0f pairs/s  (steps alone %s; %.1f s timed)" % (
                r["samples_per_s"], common.show(r.get("step_samples_per_s")), r["timed_s"])), flush=True)
        if a.output:
            common.write_lines(a.output, records)

    brim = {} if a.no_brim else run_all_brim(a, emit)
    torch = None
    if not a.no_torch:
        torch = run_torch(a)
        emit(torch)
    missed, summary = evaluate(a, brim, torch)
    records += [dict(machine, who="summary", **s) for s in summary]
    if a.output:
        common.write_lines(a.output, records)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
