#!/usr/bin/env python3
"""HDF5 samples of 5160 x 2 float32 in random order through a transformer 3/16 at batch 2048 in bf16, end to
end: `brim train` beside PyTorch with h5py in a DataLoader, on one machine with the page cache warm.

  benchmarks/compare/hdf5_e2e.py --python /path/to/python3 --output benchmarks/results/NAME.jsonl

Limits: brim's best with cache none at least 10 x PyTorch's best (any worker count, pinned or not); with no
workers at least 20 x PyTorch's with none; brim without pinned memory slower than with. cache gpu is an extra
row. Pinned and without a cache brim's GPU reads the mapped file on its own where it can: `way` in the records
is "mapped" then, and workers do not matter; "none" is loader threads. PyTorch is timed after draining what
its workers had prefetched, for --torch-seconds each, all worker counts in one process; brim over 30 times
what its ring holds, each setting in a fresh process.
--python needs torch, h5py and numpy; this interpreter h5py and numpy. Exit status 1 when a limit is missed."""
import argparse, json, os, shutil, subprocess, sys, tempfile, time

import common, e2e

BATCH, SAMPLE, OUTPUTS = 2048, (5160, 2), 4
WORKERS = [0, 4, 8, 15]
MODEL = "transformer(depth=3, hidden=16, heads=1, patch=30)"
TIMES = {"best": 10.0, "none": 20.0}
PIN_SHARE = 0.97  # share of the pinned rate below which unpinned memory is measurably slower


# ---- PyTorch, in a process of its own

def make_dataset(path, rows):
    import h5py, torch

    class Signals(torch.utils.data.Dataset):
        def __len__(self):
            return rows

        def __getitem__(self, i):
            if not hasattr(self, "file"):  # opened by each worker
                self.file = h5py.File(path, "r")
                self.x, self.y = self.file["x"], self.file["y"]
            return torch.from_numpy(self.x[i]), torch.from_numpy(self.y[i])

    return Signals()


def torch_child(a):
    import h5py, torch
    import torch.nn.functional as F
    import torch_models
    torch.set_float32_matmul_precision("high")
    device = a.torch_device
    model = torch_models.Transformer(depth=3, hidden=16, heads=1, outputs=OUTPUTS).to(device)
    opt = torch.optim.AdamW(model.parameters(), 3e-4, **(dict(fused=True) if device == "cuda" else {}))

    def step(x, y):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=a.precision == "bf16"):
            out = model(x)
        F.mse_loss(out.float(), y).backward()
        opt.step()

    deadline = time.monotonic() + a.torch_total
    words = "PyTorch %s, h5py %s" % (torch.__version__, h5py.__version__)
    cases = [(w, True) for w in a.workers] + [(w, False) for w in a.workers[::-1][:2] if w > 0]
    for workers, pin in cases:
        base = dict(who="torch", workers=workers, pin=pin, cache="none", version=words)
        if time.monotonic() > deadline - a.torch_seconds:
            print(json.dumps(dict(base, failure="left out: no time left")), flush=True)
            continue
        rate = e2e.torch_rate(make_dataset(a.file, a.samples), step, a.batch, workers, a.torch_seconds, device, pin)
        print(json.dumps(dict(base, **rate)), flush=True)


def run_torch(a):
    """One record per line as they arrive; those before a failure count."""
    argv = [a.python, os.path.abspath(__file__), "--torch-child", "--file", a.file, "--samples", str(a.samples),
            "--torch-seconds", str(a.torch_seconds), "--torch-total", str(a.torch_total), "--batch", str(a.batch),
            "--torch-device", a.torch_device, "--precision", a.precision, "--workers", *map(str, a.workers)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, errors = child.communicate(timeout=a.torch_total + 60)
    except subprocess.TimeoutExpired:
        child.kill()
        out, errors = child.communicate()
    records = [json.loads(l) for l in out.splitlines() if l.startswith("{")]
    if child.returncode:
        records.append(dict(who="torch", failure=(errors.strip().splitlines() or ["killed: no time left"])[-1][:300]))
    return records


# ---- brim

def pin_at(a):
    """The worker counts that are also tried without pinned memory: none, and a middle one."""
    return [0, a.workers[len(a.workers) // 2]]


def brim_cases(a):
    """Workers, pinned, cache; the cases that limits need come first."""
    first = [(w, pin, "none") for w in pin_at(a) for pin in (True, False)]
    rest = [(w, True, "none") for w in a.workers[::-1]]
    return first + rest[:1] + [(0, True, "gpu")] + [c for c in rest[1:] if c not in first]


def run_brim(a, workers, pin, cache, limit, scratch):
    argv = [a.brim, "train", "dataset=hdf5(inputs=[x], targets=[y])", "data.path=" + a.file,
            "model=" + MODEL, "loss=mse", "optimizer=adamw(lr=3e-4)", "data.batch_size=%d" % a.batch,
            "data.num_workers=%d" % workers, "data.prefetch_factor=%d" % e2e.PREFETCH, "data.drop_last=true",
            "data.pin_memory=%s" % str(pin).lower(), "data.cache=" + cache, "training.precision=" + a.precision,
            "--device", a.device]
    folder = tempfile.mkdtemp(dir=scratch)
    rows = a.samples // a.batch * a.batch
    ring = e2e.ring_batches(workers)
    r = e2e.brim_train(argv, folder, rows, a.batch, ring, seconds=a.brim_seconds, limit=limit)
    shutil.rmtree(folder, ignore_errors=True)
    # `cache` is the requested value; the log has the path that the samples took.
    return dict(r, who="brim", workers=workers, pin=pin, cache=cache, way=(r.get("loader") or {}).get("cache"))


def run_all_brim(a, emit):
    deadline = time.monotonic() + a.brim_total
    with tempfile.TemporaryDirectory(dir=a.run_folder) as scratch:
        for workers, pin, cache in brim_cases(a):
            left = deadline - time.monotonic()
            if left < 3:
                emit(dict(who="brim", workers=workers, pin=pin, cache=cache, failure="left out: no time left"))
                continue
            emit(run_brim(a, workers, pin, cache, min(left, a.limit), scratch))


# ---- results

def best_of(records, **wanted):
    good = [r for r in records if r.get("samples_per_s") and all(r.get(k) == v for k, v in wanted.items())]
    return max(good, key=lambda r: r["samples_per_s"]) if good else None


def evaluate(a, records):
    """Prints a line per limit; returns how many were missed."""
    def speed(r):
        return r["samples_per_s"] if r else None

    def ratio(x, y):
        return speed(x) / speed(y) if x and y else None

    brim, torch = dict(who="brim", cache="none"), dict(who="torch")
    b, t = best_of(records, **brim), best_of(records, **torch)
    b0, t0 = best_of(records, workers=0, **brim), best_of(records, workers=0, **torch)
    rows = [("best of all worker counts", ratio(b, t), TIMES["best"], b, t),
            ("no workers", ratio(b0, t0), TIMES["none"], b0, t0)]
    missed, summary = 0, []
    for name, value, wanted, mine, theirs in rows:
        good = value is not None and value >= wanted
        missed += not good
        summary.append(dict(limit=name, ratio=value, wanted=wanted, brim=speed(mine), torch=speed(theirs), reached=good))
        print("%s: brim %s, PyTorch %s samples/s, %s x (wanted %g): %s" % (
            name, common.show(speed(mine)), common.show(speed(theirs)), common.show(value, "%.1f"), wanted,
            "reached" if good else "MISSED"))
    for workers in pin_at(a):
        share = ratio(best_of(records, workers=workers, pin=False, **brim), best_of(records, workers=workers, pin=True, **brim))
        summary.append(dict(limit="not pinned over pinned, %d workers" % workers, ratio=share, wanted=PIN_SHARE))
        print("not pinned over pinned, %d workers: %s" % (workers, common.show(share, "%.2f")))
    shares = [s["ratio"] for s in summary[2:] if s["ratio"] is not None]
    slower = bool(shares) and min(shares) < PIN_SHARE
    print("pin_memory false is %s" % ("measurably slower: reached" if slower else "not measurably slower: MISSED"))
    return missed + (not slower), summary


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default="build/bin/brim")
    p.add_argument("--python", default=os.environ.get("BRIM_TORCH_PYTHON", sys.executable))
    p.add_argument("--device", default="cuda", help="brim's")
    p.add_argument("--torch-device", default="cuda")
    p.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    p.add_argument("--samples", type=int, default=32768, help="41 KB each")
    p.add_argument("--batch", type=int, default=BATCH)
    p.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    p.add_argument("--file", default="/tmp/brim-signals.h5", help="made when it is not there")
    p.add_argument("--run-folder", default="/dev/shm" if os.path.isdir("/dev/shm") else None,
                   help="of brim's logs and checkpoints, one an epoch: in memory, so that no disk is measured")
    p.add_argument("--torch-seconds", type=float, default=4, help="timed, of each worker count")
    p.add_argument("--torch-total", type=float, default=60)
    p.add_argument("--brim-seconds", type=float, default=2, help="timed at least, of each setting")
    p.add_argument("--brim-total", type=float, default=50)
    p.add_argument("--limit", type=float, default=15, help="seconds of one process of brim")
    p.add_argument("--no-torch", action="store_true")
    p.add_argument("--no-brim", action="store_true")
    p.add_argument("--output")
    p.add_argument("--torch-child", action="store_true")
    a = p.parse_args()
    if a.torch_child:
        return torch_child(a)
    import data_files
    a.brim, records = os.path.abspath(a.brim), []
    data_files.make_hdf5(a.file, a.samples, SAMPLE, data_files.random_signals, targets=OUTPUTS)
    print("%s: %.2f GB read into the page cache" % (os.path.basename(a.file), data_files.warm(a.file) / 1e9), flush=True)
    machine = dict(benchmark="hdf5_e2e", cpu=common.cpu_name(), cores=len(os.sched_getaffinity(0)), device=a.device,
                   batch=a.batch, samples=a.samples, precision=a.precision,
                   script="benchmarks/compare/hdf5_e2e.py --samples %d" % a.samples)

    def emit(r):
        records.append(dict(machine, **r))
        way = "  way %s" % r["way"] if r.get("way") else ""
        print("%-6s workers %2s  pinned %-5s  cache %-5s %s%s" % (
            r["who"], r.get("workers"), r.get("pin"), r.get("cache"), r.get("failure") or "%.0f samples/s  (%.1f s timed)" % (
                r["samples_per_s"], r["timed_s"]), way), flush=True)
        if a.output:
            common.write_lines(a.output, records)

    if not a.no_brim:
        run_all_brim(a, emit)
    if not a.no_torch:
        for r in run_torch(a):
            emit(r)
    missed, summary = evaluate(a, records)
    records += [dict(machine, who="summary", **s) for s in summary]
    if a.output:
        common.write_lines(a.output, records)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
