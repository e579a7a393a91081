#!/usr/bin/env python3
"""Do the figures of `brim profile` add up, and do its two sources agree? On a GPU; with --device cpu the sums alone.

  benchmarks/profile/agree.py --brim build/bin/brim [--output FILE]             about 2 minutes
  benchmarks/profile/agree.py --brim build/bin/brim --device cpu --small        to try the script

Profiles four steps on synthetic data: ResNet-18 at batch 512, transformer 3/16 at batch 4096, SimCLR, rollouts of ARS.
  sums     the rows of each list add up to the measured, untraced step within 3 %
  sources  ops by CUDA events around each op, against the kernels of the same ops by CUPTI, within 5 %. Also op by op,
           where it is at least 5 % of the step: printed, no criterion. A workload without ops (ARS) compares the GPU's
           time in phases instead.
  window   what the traced window costs in a run of 1,000 steps, at most 3 %
Exit status 1 when one of them does not hold. Each profile is a line of --output (brim.profile/1)."""
import argparse, json, math, os, subprocess, sys, tempfile

SUMS, SOURCES, WINDOW = 3.0, 5.0, 3.0  # percent
LISTS = ("kernels", "ops", "layers", "phases")

SUPERVISED = """dataset: synthetic(%(data)s, samples=%(samples)d, val_samples=64)
model: %(model)s
optimizer: %(optimizer)s
data: {batch_size: %(batch)d}
training: {epochs: 100, precision: %(precision)s, eval_interval: 0}
seed: 0
"""
SIMCLR = """workload: contrastive
dataset: synthetic(%(data)s, samples=%(samples)d, val_samples=64)
transform:
  train: >-
    views | random_resized_crop(size=%(size)d, scale=(0.2, 1.0)) | random_flip |
    color_jitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, p=0.8) | random_grayscale(p=0.2)
model: %(model)s
loss: ntxent(temperature=0.2)
optimizer: sgd(lr=0.1, momentum=0.9, weight_decay=5e-4)
data: {batch_size: %(batch)d}
training: {epochs: 100, precision: %(precision)s, eval_interval: 0}
contrastive: {probe_epochs: 0}
seed: 0
"""
ARS = """workload: ars
env: quadruped(task=stand)
model: linear_policy
ars: {num_envs: %(envs)d, num_dirs: %(dirs)d, dir_chunk: %(dirs)d, top_dirs: %(top)d, iterations: 2000, eval_interval: 1000}
seed: 0
"""
SGD = "sgd(lr=0.01, momentum=0.9, weight_decay=5e-4)"
ADAMW = "adamw(lr=3e-4, weight_decay=0.01)"


def cases(small, precision):
    image = dict(optimizer=SGD, precision=precision)
    if small:
        return {
            "resnet18": SUPERVISED % dict(image, data="shape=(16, 16, 3), classes=10", samples=512, model="resnet18(width=8)", batch=32),
            "transformer": SUPERVISED % dict(data="shape=(240, 2), classes=0, targets=4, dtype=f32", samples=512, optimizer=ADAMW,
                                             model="transformer(depth=3, hidden=16, heads=1, patch=30)", batch=64, precision=precision),
            "simclr": SIMCLR % dict(data="shape=(16, 16, 3), classes=10", samples=256, size=16, batch=16, precision=precision,
                                    model="simclr(backbone=resnet18(width=8, stem=cifar), hidden=32, dim=16)"),
            "ars": ARS % dict(envs=4, dirs=4, top=2),
        }
    return {
        "resnet18": SUPERVISED % dict(image, data="shape=(32, 32, 3), classes=10", samples=50000, model="resnet18", batch=512),
        "transformer": SUPERVISED % dict(data="shape=(5160, 2), classes=0, targets=4, dtype=f32", samples=16384, optimizer=ADAMW,
                                         model="transformer(depth=3, hidden=16, heads=1, patch=30)", batch=4096, precision=precision),
        "simclr": SIMCLR % dict(data="shape=(96, 96, 3), classes=10", samples=8192, size=96, batch=256, precision=precision,
                                model="simclr(backbone=resnet18(stem=imagenet), hidden=512, dim=128)"),
        "ars": ARS % dict(envs=64, dirs=64, top=32),
    }


def profile(a, folder, config, source):
    """The record, or None and the reason."""
    argv = [a.brim, "profile", config, "--device", a.device, "--json", "--no-price",
            "--output-dir", os.path.join(folder, "profile-" + source)]
    if source != "auto":
        argv += ["--source", source]
    try:
        r = subprocess.run(argv, capture_output=True, text=True, timeout=a.limit, cwd=folder)
    except subprocess.TimeoutExpired:
        return None, "took more than %g s" % a.limit
    for text in (r.stdout, *reversed(r.stdout.splitlines())):
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("profile"), dict):
            return record["profile"], ""
    return None, (r.stderr.strip().splitlines() or ["exit status %d" % r.returncode])[-1][:300]


def ops_ms(record, of=None):
    """Time of a step's ops on the device; with `of` that of one op alone."""
    rows = [r for r in record["ops"] if r["kind"] == "op" and of in (None, r["name"])]
    return sum(r["total_ms"] or 0 for r in rows)


def phases_ms(record):
    """Time of the phases in which the device works, for a profile without ops."""
    idle = ("gap", "copy")
    return sum(r["ms"] or 0 for r in record["phases"] if r["kind"] not in idle and r["name"] not in ("io", "other", "h2d"))


def differ(x, y):
    return 100 * abs(x - y) / y if y else math.nan


class Verdicts:
    def __init__(self):
        self.bad = 0

    def say(self, case, what, value, limit, detail=""):
        good = value is not None and not math.isnan(value) and value <= limit
        self.bad += not good
        shown = "-" if value is None or math.isnan(value) else "%.2f %%" % value
        print("%-12s %-28s %10s  %-5s %s" % (case, what, shown, "good" if good else "BAD", detail))


def check_sums(v, case, record):
    step = record["step"]["ms"]
    for s in record["sums"]:
        if s["list"] in LISTS:
            v.say(case, "%s against the step" % s["list"], abs(s["percent"] - 100), SUMS,
                  "%.4f of %.4f ms (%s)" % (s["ms"], step, record["source"]))
    found = {s["list"] for s in record["sums"]}
    wanted = set(LISTS) if record["source"] == "cupti" else set(LISTS) - {"kernels"}
    for missing in sorted(wanted - found):
        v.say(case, "%s against the step" % missing, None, SUMS, "no rows")


def check_sources(v, case, cupti, events):
    mine, theirs = ops_ms(events), ops_ms(cupti)
    if not theirs:
        mine, theirs = phases_ms(events), phases_ms(cupti)
    v.say(case, "events against CUPTI", differ(mine, theirs), SOURCES, "%.4f and %.4f ms" % (mine, theirs))
    step = cupti["step"]["ms"]
    for row in cupti["ops"]:
        if row["kind"] == "op" and row["total_ms"] and row["total_ms"] >= 0.05 * step:
            other = ops_ms(events, row["name"])
            print("%-12s   %-26s %9.2f %%        %.4f and %.4f ms" % ("", row["name"], differ(other, row["total_ms"]), other,
                                                                       row["total_ms"]))


def check(a, v, folder, case, text, out):
    config = os.path.join(folder, case + ".yaml")
    with open(config, "w") as f:
        f.write(text)
    best, why = profile(a, folder, config, "auto")
    if not best:
        v.say(case, "profile", None, 0, why)
        return
    out.append(best)
    check_sums(v, case, best)
    cost = best["cost"]
    v.say(case, "window of 1,000 steps", cost["run_percent"], WINDOW,
          "%d steps, %.4f ms more each, %.2f s in all" % (best["step"]["traced_steps"], cost["extra_ms"], cost["seconds"]))
    if best["note"]:
        print("%-12s note: %s" % ("", best["note"]))
    if best["source"] == "clock":
        return
    if best["source"] != "cupti":
        v.say(case, "events against CUPTI", None, SOURCES, "no CUPTI here")
        return
    events, why = profile(a, folder, config, "events")
    if not events:
        v.say(case, "events against CUPTI", None, SOURCES, why)
        return
    out.append(events)
    check_sums(v, case, events)
    check_sources(v, case, best, events)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default="build/bin/brim")
    p.add_argument("--device", default="cuda")
    p.add_argument("--precision", default="bf16")
    p.add_argument("--small", action="store_true", help="cases that any machine can run")
    p.add_argument("--case", nargs="+", help="of: resnet18 transformer simclr ars")
    p.add_argument("--limit", type=float, default=180, help="seconds a profile may take")
    p.add_argument("--output", help="the profiles, a line each")
    a = p.parse_args()
    a.brim = os.path.abspath(a.brim)
    v, out = Verdicts(), []
    known = cases(a.small, a.precision)
    with tempfile.TemporaryDirectory(prefix="brim-agree-") as folder:
        for case in a.case or known:
            if case not in known:
                sys.exit("unknown case '%s': one of %s" % (case, ", ".join(known)))
            check(a, v, folder, case, known[case], out)
            sys.stdout.flush()
    if a.output:
        with open(a.output, "w") as f:
            for record in out:
                f.write(json.dumps(record) + "\n")
    print("%d of the criteria do not hold" % v.bad if v.bad else "all hold")
    return 1 if v.bad else 0


if __name__ == "__main__":
    sys.exit(main())
