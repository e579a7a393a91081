#!/usr/bin/env python3
"""Two builds of brim beside each other on one machine, in turns: is the new one as fast as the old?

  benchmarks/compare/versions.py OLD/build/bin NEW/build/bin --output benchmarks/results/NAME.jsonl

Engine steps (bench_model), rollouts of the quadruped (bench_rollout), MAPPO's iterations (bench_mappo), every op
(bench_ops; a round's rate is the geometric mean of all cases, and the slowest ones are listed), and `brim train` end
to end from an HDF5 file and for SimCLR. Each round runs both builds of every case, the first to run alternating. The
figure of a case is the median of the rounds' ratios new / old; planned bytes have to be equal. One JSON
line per case goes to --output. Exit status 1 when a ratio is below --least or plans differ.

With --bits both builds train short runs of every workload instead, with one cache of measured algorithms, and their
weights have to be equal."""
import argparse, hashlib, json, math, os, shutil, statistics, subprocess, sys, tempfile, time

import common, e2e

STEPS = ["resnet18-cifar:64", "resnet18-cifar:512", "resnet18-cifar:2048", "wrn28-2:512", "transformer-3-16:4096"]
# environments in all, as directions x environments of each sign
ROLLOUTS = {"quadruped:65536": ("64", "512"), "quadruped:4096": ("64", "32")}
TRAINS = ["hdf5:256", "simclr:512"]
MAPPO = ["mappo:uav", "mappo:cartpole-mappo"]
OPS = ["ops"]
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs")
VIEWS = ("views(views=2) | random_resized_crop(size=96) | random_flip | color_jitter(brightness=0.4, contrast=0.4, "
         "saturation=0.4, hue=0.1, p=0.8) | random_grayscale(p=0.2)")


def step_of(a, folder, case):
    a.bench_model = os.path.join(folder, "bench_model")
    r = common.run_brim(a, case, a.precision)
    return r.get("samples_per_s"), r.get("planned_bytes"), r.get("failure")


def rollout_of(a, folder, case):
    dirs, envs = ROLLOUTS[case]
    r = common.run_child([os.path.join(folder, "bench_rollout"), "--device", a.device, "--dirs", dirs, "--envs", envs,
                          "--repeats", "9", "--json"], a.limit)
    return r.get("iteration_steps_per_s"), r.get("bytes"), r.get("failure")


def train_of(a, folder, case):
    name, batch = case.split(":")
    argv = [os.path.join(folder, "brim"), "train", "data.batch_size=" + batch, "data.drop_last=true",
            "training.precision=" + a.precision, "--device", a.device]
    if name == "hdf5":
        argv += ["data.path=" + a.file, "model=transformer(depth=3, hidden=16, heads=1, patch=30)", "loss=mse",
                 "optimizer=adamw(lr=3e-4)", "data.num_workers=8", "data.cache=none"]
        samples = a.samples
    else:
        samples = 8192
        argv += ["dataset=synthetic(shape=(96, 96, 3), classes=10, samples=%d, val_samples=64)" % samples,
                 "model=simclr(backbone=resnet18(stem=imagenet), hidden=512, dim=128)", "loss=ntxent",
                 "optimizer=sgd(lr=0.1, momentum=0.9)", "transform.train=" + VIEWS, "transform.val=center_crop(size=96)",
                 "data.cache=gpu", "training.eval_interval=0"]
    out = tempfile.mkdtemp(dir=a.scratch)
    rows = samples // int(batch) * int(batch)
    r = e2e.brim_train(argv, out, rows, int(batch), e2e.ring_batches(8), times=5, seconds=a.seconds, limit=a.limit)
    shutil.rmtree(out, ignore_errors=True)
    return r.get("samples_per_s"), None, r.get("failure")


def mappo_of(a, folder, case):
    config = os.path.join(CONFIGS, case.split(":")[1] + ".yaml")
    r = common.run_child([os.path.join(folder, "bench_mappo"), config, "--device", a.device, "--work", "iteration", "--no-ceilings",
                          "--launches", "5", "--json"], a.limit)
    return r.get("agent_steps_per_s"), None, r.get("failure")


def ops_of(a, folder, case):
    argv = [os.path.join(folder, "bench_ops"), "--device", a.device, "--ms", str(a.op_ms)]
    try:
        r = subprocess.run(argv, capture_output=True, text=True, timeout=10 * a.limit)
    except subprocess.TimeoutExpired:
        return None, None, "took more than %g s" % (10 * a.limit)
    rows = [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        a.ops.setdefault(row["case"], {}).setdefault(folder, []).append(row["median_ns"])
    if r.returncode or not rows:
        return None, None, "bench_ops ended with %d" % r.returncode
    return math.exp(statistics.fmean(math.log(1e9 / max(row["median_ns"], 1)) for row in rows)), None, None


def slowest_ops(a, old, new):
    """[ratio old / new of the medians, case] of the ops that lost most, worst first."""
    both = [[statistics.median(t[old]) / statistics.median(t[new]), case] for case, t in a.ops.items() if old in t and new in t]
    return [[round(ratio, 3), case] for ratio, case in sorted(both)[:10]], len(both)


# Short trainings, each in fp32 and bf16. BITS_CONFIGS have a precision of their own.
IMAGES = "shape=(32, 32, 3), classes=10"
BITS = {
    "mlp": ["model=mlp(depth=3, hidden=64, dropout=0.1)", "dataset=synthetic(shape=(32, 8), classes=4, samples=2048)",
            "optimizer=adamw(lr=1e-3)", "data.batch_size=128", "--max-steps", "20"],
    "resnet": ["model=resnet18(width=16)", "dataset=synthetic(%s, samples=512)" % IMAGES, "optimizer=sgd(lr=0.1, momentum=0.9)",
               "data.batch_size=64", "--max-steps", "6"],
    "wideresnet": ["model=wideresnet(depth=10, width=1)", "dataset=synthetic(%s, samples=256)" % IMAGES, "data.batch_size=64",
                   "--max-steps", "4"],
    "transformer": ["model=transformer(depth=2, hidden=32, heads=2, patch=30)",
                    "dataset=synthetic(shape=(960, 2), classes=5, samples=512)", "data.batch_size=64", "--max-steps", "10"],
    "simclr": ["model=simclr(backbone=resnet18(width=16), hidden=64, dim=32)", "loss=ntxent", "optimizer=sgd(lr=0.1, momentum=0.9)",
               "dataset=synthetic(%s, samples=512, val_samples=64)" % IMAGES, "data.batch_size=64", "training.eval_interval=0",
               "transform.train=" + VIEWS.replace("96", "32"), "--max-steps", "4"],
}
BITS_CONFIGS = {"quadruped-walk": "2", "cartpole-mappo": "3", "uav-after": "2"}


def weights_of(a, folder, argv):
    """A hash of what `brim train` with these arguments wrote; None if it failed."""
    out = tempfile.mkdtemp(dir=a.scratch)
    env = dict(os.environ, XDG_CACHE_HOME=os.path.join(a.scratch, "cache"))
    r = subprocess.run([os.path.join(folder, "brim"), "train", *argv, "seed=3", "--device", a.device, "--output-dir", out, "--quiet"],
                       capture_output=True, text=True, env=env)
    path = os.path.join(out, "model.safetensors")
    if r.returncode or not os.path.exists(path):
        print(r.stderr.strip()[-300:], file=sys.stderr)
        return None
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


def compare_bits(a, folders):
    """The number of trainings that failed or whose weights differ."""
    runs = {"%s %s" % (name, p): argv + ["training.precision=" + p] for name, argv in BITS.items() for p in ("fp32", "bf16")}
    runs.update({name: [os.path.join(CONFIGS, name + ".yaml"), "--max-steps", n] for name, n in BITS_CONFIGS.items()})
    differ, out = 0, open(a.output, "w", encoding="utf-8") if a.output else None
    with tempfile.TemporaryDirectory(prefix="versions-") as a.scratch:
        for name, argv in runs.items():
            old, new = (weights_of(a, folders[who], argv) for who in ("old", "new"))
            differ += old is None or old != new
            print("%-20s %s %s %s" % (name, old, new, "equal" if old and old == new else "DIFFERENT"), flush=True)
            if out:
                out.write(json.dumps(dict(schema="brim.versions/1", case="bits " + name, device=a.device, old=old, new=new,
                                          when=time.strftime("%Y-%m-%d", time.gmtime()))) + "\n")
    return differ


def runner(case):
    return (step_of if case in STEPS else rollout_of if case in ROLLOUTS else mappo_of if case in MAPPO else
            ops_of if case in OPS else train_of)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old", help="folder of the old build's programs")
    p.add_argument("new", help="folder of the new build's programs")
    p.add_argument("--device", default="cuda")
    p.add_argument("--precision", default="bf16")
    p.add_argument("--case", nargs="+", default=STEPS + list(ROLLOUTS) + MAPPO + TRAINS + OPS)
    p.add_argument("--bits", action="store_true", help="compare trained weights instead of speed")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--total", type=float, default=300, help="seconds; no round begins later")
    p.add_argument("--limit", type=float, default=60, help="seconds of one process")
    p.add_argument("--seconds", type=float, default=1.5, help="timed, of a training run")
    p.add_argument("--samples", type=int, default=8192, help="of the HDF5 file")
    p.add_argument("--op-ms", type=float, default=5, help="of each case of bench_ops")
    p.add_argument("--least", type=float, default=0.99)
    p.add_argument("--output")
    a = p.parse_args()
    a.windows, a.steps, a.warmup, a.ops = 3, 0, 10, {}
    folders = {"old": os.path.abspath(a.old), "new": os.path.abspath(a.new)}
    if a.bits:
        return 1 if compare_bits(a, folders) else 0
    got = {case: [] for case in a.case}
    plans, why = {}, {}
    with tempfile.TemporaryDirectory(prefix="versions-") as a.scratch:
        a.file = os.path.join(a.scratch, "signals.h5")
        if any(case.startswith("hdf5") for case in a.case):
            subprocess.run([os.path.join(folders["new"], "brim"), "data", "make", a.file, "--shape", "5160,2", "--samples",
                            str(a.samples), "--targets", "4", "--dtype", "f32", "--quiet"], check=True,
                           stdout=subprocess.DEVNULL)
        started = time.monotonic()
        for i in range(a.rounds):
            if time.monotonic() - started > a.total:
                break
            for case in a.case:
                pair = {}
                for who in (("old", "new"), ("new", "old"))[i % 2]:
                    rate, plan, failure = runner(case)(a, folders[who], case)
                    pair[who] = rate
                    plans[case, who] = plan
                    if failure:
                        why[case, who] = failure
                got[case].append(pair)
    missed, out = 0, open(a.output, "w", encoding="utf-8") if a.output else None
    for case, pairs in got.items():
        ratios = [p["new"] / p["old"] for p in pairs if p["old"] and p["new"]]
        ratio = statistics.median(ratios) if ratios else None
        same = plans.get((case, "old")) == plans.get((case, "new"))
        good = ratio is not None and ratio >= a.least and same
        missed += not good
        record = dict(schema="brim.versions/1", case=case, device=a.device, precision=a.precision, rounds=pairs,
                      ratio=ratio and round(ratio, 4), lowest=round(min(ratios), 4) if ratios else None,
                      highest=round(max(ratios), 4) if ratios else None, planned_bytes=plans.get((case, "new")), plans_equal=same,
                      failure=why.get((case, "old")) or why.get((case, "new")), when=time.strftime("%Y-%m-%d", time.gmtime()))
        if case in OPS:
            record["slowest"], record["cases"] = slowest_ops(a, folders["old"], folders["new"])
        print("%-24s %s  (%s to %s)  %s%s" % (case, common.show(ratio, "%.3f"), common.show(record["lowest"], "%.3f"),
                                            common.show(record["highest"], "%.3f"),
                                            "plans equal" if same else "PLANS DIFFER",
                                            "; " + record["failure"] if record["failure"] else ""), flush=True)
        if out:
            out.write(json.dumps(record) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
