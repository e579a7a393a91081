#!/usr/bin/env python3
"""Training steps on a few CPU cores, brim beside PyTorch, in one run.

  benchmarks/compare/cpu_step.py --threads 2 --rounds 3 --output benchmarks/results/NAME.jsonl

Rounds alternate (brim, PyTorch, brim, ...), each a fresh process; the figure is the median of the
rounds' medians. Needs a python3 with torch (Debian: python3-torch); --python names it."""
import argparse, os, platform, statistics, sys

import common

CASES = [("resnet18-cifar:64", "fp32"), ("resnet18-cifar:64", "bf16"), ("transformer-3-16:256", "fp32")]


def compare(a, text, precision):
    got = {"brim": [], "torch": []}
    notes = {}
    for _ in range(a.rounds):
        for who in got:
            if who == "torch" and a.no_torch:
                continue
            r = (common.run_brim(a, text, precision, ["--threads", str(a.threads)]) if who == "brim" else
                 common.run_torch(a, text, precision, "eager", "cpu"))
            notes[who] = r.get("failure") or r.get("library") or r.get("version")
            if not r.get("failure"):
                got[who].append(r["samples_per_s"])
    rec = dict(benchmark="cpu_step", case=text, precision=precision, threads=a.threads, cpu=common.cpu_name(),
               arch=platform.machine(), device=a.device, rounds=a.rounds, brim_note=notes.get("brim"),
               torch_note=notes.get("torch"))
    for who, speeds in got.items():
        rec[who + "_samples_per_s"] = statistics.median(speeds) if speeds else None
        rec[who + "_samples_per_s_rounds"] = speeds
    rec["ratio"] = rec["brim_samples_per_s"] / rec["torch_samples_per_s"] if all(got.values()) else None
    return rec


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench-model", default="build/bin/bench_model")
    p.add_argument("--python", default=os.environ.get("BRIM_TORCH_PYTHON", "/usr/bin/python3"))
    p.add_argument("--device", default="cpu", help="brim's")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--windows", type=int, default=5)
    p.add_argument("--steps", type=int, default=0, help="of a window; 0 = a quarter of a second")
    p.add_argument("--warmup", type=int, default=3, help="steps before the first window")
    p.add_argument("--limit", type=float, default=300, help="seconds of one process")
    p.add_argument("--case", nargs="+", metavar="NAME:BATCH", help="with --precision, instead of the usual three")
    p.add_argument("--precision", default="fp32")
    p.add_argument("--no-torch", action="store_true", help="brim alone")
    p.add_argument("--output")
    a = p.parse_args()
    a.bench_model = os.path.abspath(a.bench_model)
    records = []
    for text, precision in [(c, a.precision) for c in a.case] if a.case else CASES:
        rec = compare(a, text, precision)
        records.append(rec)
        print("%-24s %s  brim %s samples/s (%s)  PyTorch %s samples/s (%s)  ratio %s" % (
            text, precision, common.show(rec["brim_samples_per_s"], "%.1f"), rec["brim_note"],
            common.show(rec["torch_samples_per_s"], "%.1f"), rec["torch_note"], common.show(rec["ratio"], "%.2f")),
            flush=True)
    if a.output:
        common.write_lines(a.output, records)


if __name__ == "__main__":
    sys.exit(main())
