#!/usr/bin/env python3
"""Does `brim bench` say anything for certain beside busy programs that is not so on a quiet machine?

Measures every setting of a small sweep alone, in several exhaustive rounds. Then it runs the same bench again
and again beside busy loops on the same CPUs, and holds every certain statement against the quiet rounds:
"X 32 is at least 1.13x faster than 8", a gain whose interval lies above 1, and a recommendation that is not
marked provisional.

  benchmarks/tune/certain_busy.py --cpus 0,1 --repeats 40

It appends a record to benchmarks/results/certain-busy-MACHINE.jsonl and ends with 1 where the quiet rounds
contradict a statement. Other programs must not use these CPUs; their share during the quiet rounds is printed.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOADS = {  # config, grid, and which of the settings is the config's own
    "supervised": ("""\
workload: supervised
dataset: synthetic(shape=(64,), classes=10, samples=4096)
model: mlp(depth=3, hidden=128)
data: {batch_size: 32, num_workers: 0}
training: {use_amp: false}
""", ["--batch-sizes", "8", "32", "128", "--num-workers", "0", "1", "--precisions", "fp32"],
                   {"batch_size": "32", "num_workers": "0"}),
    "ars": ("""\
workload: ars
env: cartpole
model: linear_policy
ars: {num_envs: 16, num_dirs: 8, dir_chunk: 8, top_dirs: 4}
""", ["--num-envs", "4", "16", "64", "--num-dirs", "8", "--dir-chunk", "2", "8"],
            {"num_envs": "16", "dir_chunk": "8"}),
}
TOLERANCE = 0.02  # the accuracy of a ratio in the quiet rounds
SENTENCE = re.compile(r"(\w+) (\S+) is at least ([\d.]+)x faster than ([^;]+)")


def bench(brim, folder, *more):
    out = subprocess.run([brim, "bench", str(folder / "small.yaml"), "--device", "cpu", *GRID, "--no-price",
                          "--no-ceilings", "--output-dir", str(folder / "out"), "--json", *more],
                         check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    events = [json.loads(line) for line in out.stdout.splitlines()]
    result = [e for e in events if e["event"] == "result"][-1]
    records = [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text().splitlines()]
    return result, [r for r in records if r["kind"] == "trial"]


def key(setting):
    return tuple(sorted((name, str(value)) for name, value in setting.items()))


def quiet_rounds(brim, folder, rounds):
    rates, others = {}, []
    for _ in range(rounds):
        result, records = bench(brim, folder, "--exhaustive", "--repeats", "6")
        others.append(result["others_cpu_percent"] or 0)
        for r in records:
            rates.setdefault(key(r["what"]["setting"]), []).append(r["throughput"]["samples_per_s"])
    return {k: statistics.median(v) for k, v in rates.items()}, statistics.mean(others)


def statements(result, records, truth):
    """(text, promised factor, true factor) of every certain statement."""
    pick = dict(result["recommended"])
    best = truth[key(pick)]
    for knob, value, factor, others in SENTENCE.findall(result["reason"]):
        for other in re.split(r", | and \d+ more", others):
            beside = {**{n: str(v) for n, v in pick.items()}, knob: other.strip()}
            if key(beside) in truth:
                yield (f"{knob} {value} at least {factor}x faster than {other.strip()}", float(factor),
                       best / truth[key(beside)])
    low = result["gain"][1]
    now = truth[key(dict(NOW))] if NOW else None
    if low and low > 1 and not result["keep"] and now:
        yield f"gain at least {low:.3f}", low, best / now
    if not result["provisional"]:
        yield "not provisional: none is 3 % faster", 0.97, best / max(truth.values())


def main():
    global NOW, GRID
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--brim", default=str(ROOT / "build" / "bin" / "brim"))
    parser.add_argument("--workload", default="supervised", choices=WORKLOADS)
    parser.add_argument("--cpus", default="", help="CPUs to use, such as 0,1 (default: all)")
    parser.add_argument("--loops", type=int, default=2, help="busy loops (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="quiet exhaustive rounds (default: 5)")
    parser.add_argument("--repeats", type=int, default=40, help="benches beside the loops (default: 40)")
    args = parser.parse_args()
    if args.cpus:
        os.sched_setaffinity(0, {int(c) for c in args.cpus.split(",")})
    config, GRID, own = WORKLOADS[args.workload]
    said = wrong = keeps = provisional = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "small.yaml").write_text(config)
        truth, others = quiet_rounds(args.brim, folder, args.rounds)
        best = max(truth.values())
        print(f"quiet: other programs {others:.0f} % of the CPU")
        for setting, rate in truth.items():
            shown = " ".join(f"{k}={v}" for k, v in setting if k in own)
            print(f"  {shown}: {rate:,.0f} samples/s, {100 * rate / best:.0f} % of the best")
        NOW = next((dict(s) for s in truth if own.items() <= dict(s).items()), None)
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.loops)]
        try:
            for i in range(args.repeats):
                result, records = bench(args.brim, folder)
                keeps += result["keep"]
                provisional += result["provisional"]
                for text, promised, real in statements(result, records, truth):
                    said += 1
                    bad = real < promised * (1 - TOLERANCE)
                    wrong += bad
                    print(f"  {i + 1}: {text}; quiet: {real:.3f}x{'  CONTRADICTED' if bad else ''}")
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
    print(f"{args.repeats} benches beside {args.loops} busy loops: {said} certain statements, {wrong} "
          f"contradicted; {provisional} provisional, {keeps} keep the setting")
    record = {"workload": args.workload, "cpus": args.cpus or "all", "loops": args.loops, "rounds": args.rounds, "quiet_others": others,
              "repeats": args.repeats, "certain": said, "contradicted": wrong, "provisional": provisional,
              "keeps": keeps, "truth": {" ".join(f"{k}={v}" for k, v in s): r for s, r in truth.items()}}
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    with open(results / f"certain-busy-{platform.machine()}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
