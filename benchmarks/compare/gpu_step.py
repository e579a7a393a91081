#!/usr/bin/env python3
"""Training steps on one GPU, brim beside PyTorch (eager, torch.compile, torch.compile with
mode="reduce-overhead"), in one run on one machine: never two at a time, each in a fresh process.

  benchmarks/compare/gpu_step.py --python /path/to/python3 --output benchmarks/results/NAME.jsonl
  benchmarks/compare/gpu_step.py --case resnet18-cifar:512 --skip compile
  benchmarks/compare/gpu_step.py --device ref --case tiny:4 --skip eager compile reduce-overhead

One JSON line per measurement goes to --output as soon as it is there; the table at the end has the
ratio of brim to the best of PyTorch's. --limit bounds one process, --total the run: what does not fit
is left out and said so."""
import argparse, json, os, sys, time

import common

REQUIRED = ["resnet18-cifar:64", "resnet18-cifar:512", "resnet18-cifar:2048", "wrn28-2:512", "transformer-3-16:4096"]
MORE = ["resnet50-224:256", "simclr-96:512"]
VARIANTS = ["brim", "eager", "compile", "reduce-overhead"]


def memory_of(r):
    return r.get("planned_bytes") or r.get("peak_allocated_bytes")


def table(cases, results):
    head = ["case", "brim"] + VARIANTS[1:] + ["brim / best", "GB brim", "GB best", "GB reserved"]
    rows = [head]
    for c in cases:
        got = {v: results[c, v] for v in VARIANTS if (c, v) in results}
        speed = {v: r.get("samples_per_s") for v, r in got.items()}
        peers = {v: s for v, s in speed.items() if v != "brim" and s}
        best = max(peers, key=peers.get) if peers else None
        ratio = speed["brim"] / peers[best] if best and speed.get("brim") else None
        memory = [memory_of(got["brim"]) if "brim" in got else None,
                  memory_of(got[best]) if best else None,
                  got[best].get("peak_reserved_bytes") if best else None]
        rows.append([c] + [common.show(speed.get(v)) for v in VARIANTS] + [common.show(ratio, "%.2f")]
                    + [common.show(b / 1e9 if b else None, "%.2f") for b in memory])
    width = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for r in rows:
        print("  ".join(t.rjust(w) if i else t.ljust(w) for i, (t, w) in enumerate(zip(r, width))))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench-model", default="build/bin/bench_model")
    p.add_argument("--python", default=os.environ.get("BRIM_TORCH_PYTHON", sys.executable))
    p.add_argument("--device", default="cuda", help="brim's")
    p.add_argument("--torch-device", default="cuda")
    p.add_argument("--precision", default="bf16")
    p.add_argument("--case", nargs="+", default=None, metavar="NAME:BATCH")
    p.add_argument("--more", action="store_true", help="also " + " ".join(MORE))
    p.add_argument("--skip", nargs="+", default=[], choices=VARIANTS)
    p.add_argument("--windows", type=int, default=5)
    p.add_argument("--steps", type=int, default=0, help="of a window; 0 = a quarter of a second")
    p.add_argument("--warmup", type=int, default=10, help="steps before the first window")
    p.add_argument("--limit", type=float, default=150, help="seconds of one process")
    p.add_argument("--total", type=float, default=540, help="seconds of the run")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--cache-folder", default="", help="brim's chosen algorithms")
    p.add_argument("--no-measure", action="store_true", help="brim's algorithms are not timed")
    p.add_argument("--output")
    a = p.parse_args()
    a.bench_model = os.path.abspath(a.bench_model)
    cases = (a.case or REQUIRED) + (MORE if a.more else [])
    extra = ["--cache-folder", a.cache_folder] if a.cache_folder else []
    extra += ["--no-measure"] if a.no_measure else []
    started, results, limit = time.monotonic(), {}, a.limit
    out = open(a.output, "w") if a.output else None
    # brim and eager of all cases first: if time runs out, only compiling is left out.
    order = [(c, v) for group in (VARIANTS[:2], VARIANTS[2:]) for c in cases for v in group if v not in a.skip]
    for c, v in order:
        a.limit = min(limit, a.total - (time.monotonic() - started))
        if a.limit < 5:
            r = dict(failure="left out: no time left", case=c, variant=v, who="brim" if v == "brim" else "torch")
        elif v == "brim":
            r = common.run_brim(a, c, a.precision, extra)
        else:
            r = common.run_torch(a, c, a.precision, v, a.torch_device)
        results[c, v] = r
        if out:
            out.write(json.dumps(r) + "\n")
            out.flush()
        print("%-24s %-16s %s" % (c, v, r.get("failure") or "%.0f samples/s  %.3f ms (%.3f to %.3f)  %.2f GB  %.0f s" % (
            r["samples_per_s"], r["ms"], r["ms_min"], r["ms_max"], (memory_of(r) or 0) / 1e9, r["wall_s"])), flush=True)
    print()
    table(cases, results)
    if out:
        out.close()


if __name__ == "__main__":
    sys.exit(main())
