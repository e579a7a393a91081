#!/usr/bin/env python3
"""Does `make demo` pick well on a busy machine?

Measures every setting of the demo alone, in rounds, then runs tools/demo beside busy loops. The pick
has to reach 95 % of the best setting's throughput without them:

  benchmarks/tune/demo_busy.py

It appends a record to benchmarks/results/demo-busy-MACHINE.jsonl. Run it when nothing else uses the machine. What others use meanwhile is measured and printed; above a
tenth of a core the record says "quiet": false, and the result proves nothing. brim must be built.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = {"data.batch_size": "batch_size", "data.num_workers": "num_workers",
        "training.precision": "precision"}
QUIET_CORES = 0.1


def cpu_seconds():
    """Seconds of all cores used so far, by every process."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def cores_used_by_others(seconds=3.0):
    before, start = cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds() - before) / (time.monotonic() - start)


def setting_of(record):
    setting = record["what"]["setting"]
    return tuple(str(setting[name]) for name in KEYS.values())


def measure_round(brim, data, folder):
    """Samples/s of every setting, each visited once."""
    output = pathlib.Path(folder) / "round.jsonl"
    output.unlink(missing_ok=True)
    subprocess.run([brim, "bench", "--config", str(ROOT / "configs" / "demo.yaml"), "--data-path", data,
                    "--output-dir", str(folder), "--output", str(output), "--repeats", "1", "--min-steps",
                    "10", "--no-ceilings", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    rates = {}
    for line in output.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        rate = record["throughput"]["samples_per_s"]
        if record["kind"] == "trial" and rate:
            rates[setting_of(record)] = rate
    return rates


def exhaustive(brim, data, folder, rounds):
    """The rates of all rounds for each setting, and the most cores that other programs used between them."""
    rates, others = {}, 0.0
    for i in range(rounds):
        others = max(others, cores_used_by_others())
        for setting, rate in measure_round(brim, data, folder).items():
            rates.setdefault(setting, []).append(rate)
        print(f"round {i + 1} of {rounds}; others use {others:.2f} cores", flush=True)
    return rates, others


def run_demo(folder, loops):
    """The pick of tools/demo beside busy loops, whether it is provisional, and its seconds."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    start = time.monotonic()
    try:
        done = subprocess.run([str(ROOT / "tools" / "demo"), str(folder)], check=True,
                              stdout=subprocess.PIPE, text=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    seconds = time.monotonic() - start
    values = {}
    for line in (pathlib.Path(folder) / "best.yaml").read_text(encoding="utf-8").splitlines():
        if line.startswith("#   "):
            key, value = line[4:].split(": ", 1)
            values[key] = value
    return tuple(values[key] for key in KEYS), "provisional" in done.stdout, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="visits to every setting without busy loops")
    parser.add_argument("--runs", type=int, default=1, help="runs of the demo beside busy loops")
    parser.add_argument("--loops", type=int, default=2, help="busy loops")
    parser.add_argument("--record", help="file to append one JSON object per run to; \"\" for none",
                        default=str(ROOT / "benchmarks" / "results" / f"demo-busy-{platform.machine()}-"
                                    f"{os.cpu_count()}cores.jsonl"))
    args = parser.parse_args()
    brim = str(ROOT / "build" / "bin" / "brim")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="demo-busy-") as folder:
        data = str(pathlib.Path(folder) / "signals.h5")
        subprocess.run([brim, "data", "make", data, "--shape", "5160,2", "--samples", "1024", "--targets",
                        "4", "--dtype", "f32", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        rates, others = exhaustive(brim, data, folder, args.rounds)
        alone = {setting: statistics.median(values) for setting, values in rates.items()}
        best = max(alone, key=alone.get)
        for setting, rate in sorted(alone.items(), key=lambda item: -item[1]):
            low, high = min(rates[setting]), max(rates[setting])
            print(f"  {' '.join(setting):16} {rate:8.1f} samples/s ({low:.1f} to {high:.1f})")
        for run in range(args.runs):
            pick, provisional, seconds = run_demo(pathlib.Path(folder) / f"demo-{run}", args.loops)
            share = alone[pick] / alone[best]
            good = share >= 0.95
            quiet = others <= QUIET_CORES
            failed += not good
            print(f"demo beside {args.loops} busy loops: {' '.join(pick)}"
                  f"{' (provisional)' if provisional else ''} in {seconds:.0f} s; alone it reaches "
                  f"{100 * share:.1f} % of the best: {'within 5 %' if good else 'NOT within 5 %'}"
                  f"{'' if quiet else '; the machine was not quiet, this proves nothing'}", flush=True)
            if args.record:
                record = {"schema": "brim.demo-busy/1", "when": time.strftime("%Y-%m-%d", time.gmtime()),
                          "machine": platform.machine(), "cores": os.cpu_count(), "loops": args.loops,
                          "quiet": quiet, "others_cores": round(others, 3), "knobs": list(KEYS.values()),
                          "alone": [{"setting": s, "samples_per_s": r, "rounds": rates[s]}
                                    for s, r in alone.items()],
                          "best": best, "pick": pick, "provisional": provisional,
                          "share_of_best": round(share, 4), "within_5_percent": good,
                          "demo_seconds": round(seconds, 1)}
                with open(args.record, "a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
