#!/usr/bin/env python3
"""The memory brim says it takes, against the memory that is gone from the GPU.

  benchmarks/compare/memory.py --build build
  benchmarks/compare/memory.py --build build --part peak --python /path/to/python3

Part `overhead`: every model at three batch sizes, each in a fresh `brim train`. Free memory of the whole
GPU before the process starts minus after its warm-up is read from outside, through NVML, and compared with
planned + overhead as brim printed them: at its start, from what an earlier process of the same model left
in the cache (`forecast`), and after its warm-up (`printed`). Models that no workload trains yet are held by
bench_model; there the first batch size's overhead is the forecast of the others.
Part `peak`: planned bytes beside PyTorch's max_memory_allocated of the same step (eager, autocast).
Part `checkpointing`: ResNet-50's planned activations with and without.

No other process may use the GPU meanwhile. Exits 1 when a figure is off."""
import argparse, json, os, queue, subprocess, sys, tempfile, threading, time

import common, gpu

LIMIT = 64 * gpu.MIB
SGD = "sgd(lr=0.001, momentum=0.9)"
IMAGE = "synthetic(shape=(32, 32, 3), classes=10, samples=100000000, val_samples=64)"
LARGE = "synthetic(shape=(224, 224, 3), classes=1000, samples=100000000, val_samples=64)"
DIGIT = "synthetic(shape=(28, 28), classes=10, samples=100000000, val_samples=64)"
SIGNAL = ("synthetic(shape=(5160, 2), classes=0, targets=4, samples=100000000, val_samples=64, dtype=f32)")

# name: model, data set, batch sizes. One cache serves all: resnet50-224 is forecast from resnet50.
TRAINED = {
    "mlp": ("mlp(depth=4, hidden=512)", DIGIT, (64, 512, 4096)),
    "resmlp": ("resmlp(depth=4, hidden=512)", DIGIT, (64, 512, 4096)),
    "transformer-3-16": (common.TOKENS % (3, 16, 1), SIGNAL, (16, 128, 1024)),
    "transformer-6-64": (common.TOKENS % (6, 64, 4), SIGNAL, (16, 64, 256)),
    "transformer-12-128": (common.TOKENS % (12, 128, 8), SIGNAL, (16, 64, 256)),
    "resnet18": ("resnet18", IMAGE, (16, 128, 1024)),
    "resnet34": ("resnet34", IMAGE, (16, 64, 256)),
    "resnet50": ("resnet50", IMAGE, (16, 64, 256)),
    "resnet101": ("resnet101", IMAGE, (16, 64, 256)),
    "resnet152": ("resnet152", IMAGE, (16, 64, 256)),
    "wrn28-2": ("wideresnet(depth=28, width=2)", IMAGE, (16, 128, 512)),
    "resnet50-224": ("resnet50", LARGE, (4, 16, 64)),
}
# name: options of bench_model, batch sizes
HELD = {
    "simclr-96": (["--model", "simclr(backbone=resnet18(stem=imagenet), hidden=512, dim=128)", "--input", "96x96x3",
                   "--targets", "128", "--views", "2"], (16, 64, 256)),
}
PEAKS = ["resnet18-cifar:64", "resnet18-cifar:512", "resnet18-cifar:2048", "wrn28-2:512", "transformer-3-16:4096",
         "resnet50-224:256"]


class Child:
    """A process that prints JSON lines; `event` waits for the first of a name. Ended by `stop`."""

    def __init__(self, argv, env=None):
        self.errors = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                      env=env)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def event(self, name, seconds):
        end = time.monotonic() + seconds
        while True:
            try:
                e = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise RuntimeError("no '%s' within %g s" % (name, seconds))
            if e is None:
                raise RuntimeError(self.why())
            if e.get("event") == name:
                return e

    def why(self):
        code = self.child.wait()
        self.errors.seek(0)
        text = [l for l in self.errors.read().splitlines() if "error" in l or "bench_model" in l]
        return "exit %d: %s" % (code, (text or ["nothing said"])[0][:400])

    def stop(self):
        self.child.kill()
        self.child.wait()


def mib(v):
    return "-" if v is None else "%.0f" % (v / gpu.MIB)


def trained(a, card, name, batch, scratch):
    model, data, _ = TRAINED[name]
    before = card.settle()
    argv = [a.brim, "train", "dataset=" + data, "model=" + model, "optimizer=" + SGD, "data.batch_size=%d" % batch,
            "training.precision=" + a.precision, "gpu.cudnn_benchmark=%s" % ("true" if a.measure else "false"),
            "--device", a.device, "--output-dir", os.path.join(scratch, "%s-%d" % (name, batch)), "--json"]
    child = Child(argv, dict(os.environ, XDG_CACHE_HOME=os.path.join(scratch, "cache")))
    try:
        start = child.event("start", a.limit)
        told = child.event("memory", a.limit)
        time.sleep(0.25)  # memory that is taken later would show
        return dict(planned=told["planned"], forecast=start["overhead"], printed=told["overhead"],
                    real=before - card.free())
    finally:
        child.stop()


def held(a, card, name, batch, forecast):
    options, _ = HELD[name]
    before = card.settle()
    argv = [a.bench_model, "--hold", "--device", a.device, "--batch", str(batch), "--precision", a.precision, *options]
    child = Child(argv + ([] if a.measure else ["--no-measure"]))
    try:
        ready = child.event("ready", a.limit)
        real = before - card.free()
        return dict(planned=ready["planned_bytes"], forecast=forecast, printed=None, real=real)
    finally:
        child.stop()


def off(r):
    """Bytes by which each reported overhead is wrong; None if none was reported."""
    return [None if r[k] is None else r["planned"] + r[k] - r["real"] for k in ("forecast", "printed")]


def overheads(a, card, out):
    print("%-20s %6s %9s %9s %9s %9s %9s %9s  MiB" % (
        "model", "batch", "planned", "forecast", "printed", "real", "off", "off"))
    bad, worst, started = [], 0, time.monotonic()
    names = [n for n in list(TRAINED) + list(HELD) if not a.only or n in a.only]
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            forecast = None
            for batch in (TRAINED.get(name) or HELD.get(name))[-1]:
                what = "%-20s %6d" % (name, batch)
                if time.monotonic() - started > a.total:
                    print(what, "left out: no time left")
                    bad.append(what)
                    continue
                try:
                    r = (trained(a, card, name, batch, scratch) if name in TRAINED else
                         held(a, card, name, batch, forecast))
                except RuntimeError as e:
                    print(what, "FAILED:", e, flush=True)
                    bad.append(what)
                    continue
                if name in HELD and forecast is None:
                    forecast = r["real"] - r["planned"]
                d = off(r)
                good = all(x is None or abs(x) <= LIMIT for x in d) and (name in HELD or d[1] is not None)
                worst = max([worst] + [abs(x) for x in d if x is not None])
                print(what, "%9s %9s %9s %9s %9s %9s  %s" % (
                    *(mib(r[k]) for k in ("planned", "forecast", "printed", "real")), *map(mib, d),
                    "" if good else "OFF"), flush=True)
                out.append(dict(benchmark="memory", model=name, batch=batch, precision=a.precision, good=good, **r))
                if not good:
                    bad.append(what)
    print("%d settings, %d off or failed, at most %s MiB off (limit %s), %.0f s" % (
        len(out), len(bad), mib(worst), mib(LIMIT), time.monotonic() - started))
    return bad


def peaks(a, out):
    print("%-24s %12s %12s %12s  MiB" % ("case", "planned", "PyTorch's", "reserved"))
    bad, started = [], time.monotonic()
    a.windows, a.steps, a.warmup, a.threads = 5, 1, 4, 0
    for text in a.case:
        if time.monotonic() - started > a.total:
            print("%-24s left out: no time left" % text)
            bad.append(text)
            continue
        mine = common.run_brim(a, text, a.precision, [] if a.measure else ["--no-measure"])
        other = common.run_torch(a, text, a.precision, "eager", "cuda")
        failure = mine.get("failure") or other.get("failure")
        if failure:
            print("%-24s FAILED: %s" % (text, failure), flush=True)
            bad.append(text)
            continue
        planned, peak = mine["planned_bytes"], other["peak_allocated_bytes"]
        good = planned <= peak
        print("%-24s %12s %12s %12s  %s" % (text, mib(planned), mib(peak), mib(other["peak_reserved_bytes"]),
                                          "" if good else "MORE"), flush=True)
        out.append(dict(benchmark="memory_peak", case=text, precision=a.precision, planned=planned, torch_peak=peak,
                        torch_reserved=other["peak_reserved_bytes"], torch=other["version"], rows=mine["planned"],
                        good=good))
        if not good:
            bad.append(text)
    print("%d cases, %d above PyTorch's peak or failed, %.0f s" % (len(a.case), len(bad), time.monotonic() - started))
    return bad


def checkpointing(a, out):
    a.windows, a.steps, a.warmup = 5, 1, 2
    got = []
    for extra in ([], ["--checkpointing"]):
        r = common.run_brim(a, a.checkpointing_case, a.precision, extra + ([] if a.measure else ["--no-measure"]))
        if r.get("failure"):
            print("checkpointing FAILED:", r["failure"])
            return ["checkpointing"]
        got.append(r["planned"]["activations"])
    good = got[1] * 2 <= got[0]
    print("%s activations %s MiB, with checkpointing %s MiB: %.2f of it%s" % (
        a.checkpointing_case, mib(got[0]), mib(got[1]), got[1] / got[0], "" if good else "  NOT HALVED"))
    out.append(dict(benchmark="memory_checkpointing", case=a.checkpointing_case, precision=a.precision, kept=got[0],
                    recomputed=got[1], good=good))
    return [] if good else ["checkpointing"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="build folder")
    p.add_argument("--part", nargs="+", default=["overhead", "peak", "checkpointing"],
                   choices=["overhead", "peak", "checkpointing"])
    p.add_argument("--only", nargs="+", choices=list(TRAINED) + list(HELD), help="models of part overhead")
    p.add_argument("--case", nargs="+", default=PEAKS, metavar="NAME:BATCH", help="of part peak")
    p.add_argument("--checkpointing-case", default="resnet50-224:64", metavar="NAME:BATCH")
    p.add_argument("--device", default="cuda", help="brim's")
    p.add_argument("--gpu", type=int, default=0, help="NVML's number of the same GPU")
    p.add_argument("--precision", default="bf16")
    p.add_argument("--measure", action="store_true", help="algorithms are timed, which takes longer")
    p.add_argument("--python", default=os.environ.get("BRIM_TORCH_PYTHON", sys.executable), help="with torch")
    p.add_argument("--limit", type=float, default=60, help="seconds of one process")
    p.add_argument("--total", type=float, default=300, help="seconds of a part")
    p.add_argument("--output", help="JSON lines")
    a = p.parse_args()
    a.brim, a.bench_model = (os.path.abspath(os.path.join(a.build, "bin", n)) for n in ("brim", "bench_model"))
    out, bad = [], []
    if "overhead" in a.part:
        bad += overheads(a, gpu.open_gpu(a.gpu), out)
    if "peak" in a.part:
        bad += peaks(a, out)
    if "checkpointing" in a.part:
        bad += checkpointing(a, out)
    if a.output:
        common.write_lines(a.output, out)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
