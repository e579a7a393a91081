#!/usr/bin/env python3
"""Do the promises of `brim bench` hold? Reads the records of sweeps that were run and evaluates them.

  brim bench CONFIG --output-dir one --verify
  brim bench CONFIG --output-dir two
  brim bench CONFIG --output-dir long --steps 100 --min-steps 100 --repeats 1 --no-ceilings
  benchmarks/compare/sweeps.py one/results.jsonl two/results.jsonl --long long/results.jsonl \\
      [--oom NAME=results.jsonl ...] --output benchmarks/results/NAME.jsonl

For each sweep: phases that sum to the step (3 %), GPU time by CUPTI beside the step's (3 %), --verify beside its
prediction (5 %). Of all: the same recommendation, and how near it is to the best of the long sweep (3 %). Of
sweeps given by --oom: which settings failed, and how. Writes a line per sweep and a line per setting, without
the config and the plan that every record repeats. Exit status 1 when a limit is missed."""
import argparse, json, statistics, sys

LONG = " --steps N --min-steps N --repeats 1 --no-ceilings"
KNOBS = ("batch_size", "num_workers", "precision", "pin_memory")


def read(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def key(r):
    return tuple(r["what"]["setting"][k] for k in KNOBS)


def median(v):
    return v["median_ms"] if isinstance(v, dict) else v


def rate(r):
    return r["throughput"]["samples_per_s"]


def recommended(trials):
    """The recommendation by the rule of docs/bench.md, from the records alone: the smallest within 3 % of the best."""
    good = [r for r in trials if r["trial"]["stable"] and not r["trial"]["throttled"]]
    small = [r for r in good if r["memory"]["planned_device"] < 0.8 * r["memory"]["free_before"]]
    best = max(rate(r) for r in small)
    near = [r for r in small if rate(r) >= 0.97 * best]
    return min(near, key=lambda r: (r["memory"]["planned_device"] + r["memory"]["planned_host"],
                                    r["what"]["setting"]["num_workers"]))


def measured_s(r):
    return r["trial"]["steps"] * r["total"]["median_ms"] / 1e3


def evaluate(name, rows):
    trials = [r for r in rows if r["kind"] == "trial" and not r["failure"]]
    pick = recommended(trials)
    sums = [abs(sum(median(v) for v in r["phases"].values() if v is not None) / r["total"]["median_ms"] - 1)
            for r in trials]
    cupti = {" ".join(map(str, key(r))): r["trace"]["gpu_busy_ms"] / r["total"]["median_ms"] for r in trials
             if r["trace"] and r["trace"]["gpu_busy_ms"]}
    out = {"benchmark": "sweeps", "sweep": name, "device": pick["where"]["device"], "library": pick["where"]["library"],
           "settings": len(trials), "seconds": sum(r["trial"]["seconds"] for r in trials),
           "measured_s": sum(map(measured_s, trials)),
           "windows": statistics.mean(r["total"]["n"] for r in trials),
           "unstable": sum(not r["trial"]["stable"] for r in trials),
           "throttled": sum(bool(r["trial"]["throttled"]) for r in trials), "phases_off": max(sums),
           "gpu_busy_of_step": cupti, "recommended": dict(zip(KNOBS, key(pick))),
           "recommended_samples_per_s": rate(pick),
           "recommended_interval": [pick["throughput"]["ci_low"], pick["throughput"]["ci_high"]],
           "highest_samples_per_s": max(map(rate, trials))}
    for r in rows:
        if r["kind"] == "verify":
            out.update(verified_samples_per_s=rate(r), verified=rate(r) / rate(pick), verify_seconds=r["trial"]["seconds"])
    return out


def failures(name, rows):
    out = {"benchmark": "sweeps", "oom": name, "device": rows[0]["where"]["device"], "settings": len(rows), "failed": []}
    for r in rows:
        f = r["failure"]
        out["failed"] += [dict(zip(KNOBS, key(r)), **{"class": f["class"], "message": f["message"],
                                                     "planned_device": r["memory"]["planned_device"]})] if f else []
    kinds = [f["class"] for f in out["failed"]]
    out["classes"] = {k: kinds.count(k) for k in sorted(set(kinds))}
    return out


def settings(sweeps):
    for k in sorted({key(r) for rows in sweeps.values() for r in rows}, key=str):
        line = dict(zip(KNOBS, k), benchmark="sweeps")
        for name, rows in sweeps.items():
            r = next((r for r in rows if r["kind"] == "trial" and key(r) == k), None)
            if r and not r["failure"]:
                line[name] = {"samples_per_s": round(rate(r), 1), "total_ms": round(r["total"]["median_ms"], 5),
                              "windows": r["total"]["n"], "stable": r["trial"]["stable"],
                              "phases_ms": {p: round(median(v), 5) for p, v in r["phases"].items() if v is not None}}
        yield line


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sweep", nargs="+")
    p.add_argument("--long")
    p.add_argument("--oom", action="append", default=[], metavar="NAME=FILE")
    p.add_argument("--output")
    a = p.parse_args()
    sweeps = {"sweep %d" % (i + 1): read(path) for i, path in enumerate(a.sweep)}
    if a.long:
        sweeps["long"] = read(a.long)
    lines, misses = [], []
    for name, rows in sweeps.items():
        s = evaluate(name, rows)
        s["command"] = "brim bench " + rows[0]["what"]["config"]["name"] + ".yaml" + (
            LONG if name == "long" else " --verify" if "verified" in s else "")
        misses += ["%s: phases" % name] if s["phases_off"] > 0.03 else []
        misses += ["%s: CUPTI" % name] if any(abs(v - 1) > 0.03 for v in s["gpu_busy_of_step"].values()) else []
        misses += ["%s: verify" % name] if abs(s.get("verified", 1) - 1) > 0.05 else []
        lines.append(s)
    if len({json.dumps(s["recommended"]) for s in lines if s["sweep"] != "long"}) > 1:
        misses.append("not the same recommendation")
    if a.long:
        last = {key(r): rate(r) for r in sweeps["long"] if r["kind"] == "trial" and not r["failure"]}
        for s in lines[:-1]:
            s["of_the_best_of_long"] = last[tuple(s["recommended"].values())] / max(last.values())
            s["long_is_longer"] = lines[-1]["measured_s"] / s["measured_s"]
            misses += ["%s: recommendation" % s["sweep"]] if s["of_the_best_of_long"] < 0.97 else []
            misses += ["%s: the long sweep is %.1f times as long, not 10" % (s["sweep"], s["long_is_longer"])] \
                if s["long_is_longer"] < 10 else []
    for s in lines:
        print(json.dumps(s, indent=1))
    for spec in a.oom:
        name, path = spec.split("=", 1)
        lines.append(failures(name, read(path)))
        print(name, lines[-1]["settings"], lines[-1]["classes"])
    lines += list(settings(sweeps))
    if a.output:
        with open(a.output, "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
    for m in misses:
        print("missed:", m)
    return bool(misses)


if __name__ == "__main__":
    sys.exit(main())
