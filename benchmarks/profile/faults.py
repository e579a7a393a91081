#!/usr/bin/env python3
"""Are brim's findings true? Plants one fault after the other in brim's own workloads, reads the first
finding of `brim bench` and its price, removes the fault, and measures what that saved.

  benchmarks/profile/faults.py                       # on a GPU: every fault, under 150 s
  benchmarks/profile/faults.py --device cpu --small  # those that a CPU can have

One JSON line per fault: the finding that stands first, its price and the measured saving in ms per step,
and a verdict. "ok": the fault is named first, and its price is within 20 % of the saving or within 2 % of
the step. A fault that costs less than 3 % of a step need not be named. "skipped" says why. The exit code
is 1 where one verdict is neither. The machine should be quiet. brim must be built (--brim)."""
import argparse, json, os, shutil, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LEAST = 0.03  # of a step: less is not reported


class Skip(Exception):
    pass


class Bench:
    def __init__(self, args, folder):
        self.brim, self.folder, self.device, self.small = args.brim, folder, args.device, args.small
        self.runs = 0
        self.gpu = args.device.startswith("cuda")

    def run(self, argv, timeout=60, **more):
        r = subprocess.run([self.brim] + argv, capture_output=True, text=True, timeout=timeout, cwd=self.folder, **more)
        if r.returncode:
            raise Skip("exit %d of brim %s: %s" % (r.returncode, argv[0], r.stderr.strip()[-300:]))
        return r.stdout

    def data(self, name, shape, samples, images=False):
        """A data set, made once: an HDF5 file, or a folder of JPEG images."""
        path, file = os.path.join(self.folder, name), os.path.join(self.folder, name + ".h5")
        if not os.path.exists(file):
            self.run(["data", "make", file, "--shape", shape, "--samples", str(samples), "--classes", "4"])
        if images and not os.path.exists(path):
            self.run(["data", "convert", file, path, "--format", "jpg"])
        return path if images else file

    def fast(self):
        """The precision in which the device is fastest: another one would be a fault as well."""
        if self.gpu:
            return "bf16"
        with open("/proc/cpuinfo") as f:
            return "bf16" if "bf16" in f.read() else "fp32"

    def epoch_s(self, config, overrides, epochs=1, steps_alone=False):
        """Seconds of the last epoch of a training: of its steps, or of everything in that epoch."""
        self.runs += 1
        out = os.path.join(self.folder, "train-%d" % self.runs)
        self.run(["train", config, "--device", self.device, "--output-dir", out, "--quiet",
                  "training.epochs=%d" % epochs] + overrides)
        with open(os.path.join(out, "log.jsonl")) as f:
            rows = [json.loads(line) for line in f if '"event":"epoch"' in line]
        shutil.rmtree(out, ignore_errors=True)
        if steps_alone:
            return rows[-1]["seconds"]
        # wall_s counts from the start of the training
        return rows[-1]["wall_s"] - (rows[-2]["wall_s"] if len(rows) > 1 else 0)

    def config(self, name, text):
        path = os.path.join(self.folder, name + ".yaml")
        with open(path, "w") as f:
            f.write(text)
        return path

    def measure(self, config, overrides, price, device=None, own=None, **more):
        """The record of the config's own setting alone."""
        self.runs += 1
        out = os.path.join(self.folder, "run-%d" % self.runs)
        argv = ["bench", config, "--device", device or self.device, "--output-dir", out, "--quiet"]
        argv += own or []
        argv += [] if price else ["--no-price"]
        self.run(argv + overrides, **more)
        with open(os.path.join(out, "results.jsonl")) as f:
            records = [json.loads(line) for line in f]
        record = own_of(records, overrides)
        if record["failure"]:
            raise Skip("%(class)s: %(message)s" % record["failure"])
        return record


def own_of(records, overrides):
    """The record of a sweep whose setting has the values of the overrides."""
    asked = dict(o.split("=", 1) for o in overrides)
    asked = {key.split(".")[-1]: value for key, value in asked.items()}
    for record in records:
        setting = record["what"]["setting"]
        if all(str(setting[k]).lower() == v for k, v in asked.items() if k in setting):
            return record
    return records[0]


def step_ms(record):
    return record["total"]["median_ms"]


def samples(record):
    return record["throughput"]["samples_per_s"] * step_ms(record) * 1e-3


def saved_ms(faulty, fixed):
    """Milliseconds saved per step, for the samples of the faulty step."""
    return step_ms(faulty) - samples(faulty) / fixed["throughput"]["samples_per_s"] * 1e3


def first_of(record):
    found = [f for f in record["findings"] if not f.get("note")]
    return found[0] if found else None


def judge(name, expected, record, saving, more=None):
    """`saving` in ms of the faulty record's step."""
    first, step = first_of(record), step_ms(record)
    price = first["cost_ms"] if first else None
    line = dict(fault=name, expected=expected, first=first and first["code"], price_ms=price, saving_ms=saving,
                step_ms=step, text=first and first["text"], remedy=first and first["remedy"],
                change=first and first.get("change"), measured=bool(first and first.get("measured")),
                others=[f["code"] for f in record["findings"][1:]])
    named = bool(first) and first["code"] in expected
    near = price is not None and saving is not None and abs(price - saving) <= max(0.2 * abs(saving), 0.02 * step)
    line["price_over_saving"] = price / saving if price is not None and saving and saving > 0 else None
    if named and near:
        line["verdict"] = "ok"
    elif not first and saving is not None and saving < LEAST * step:
        line["verdict"] = "ok"  # it costs nothing, so brim reports nothing
    else:
        line["verdict"] = "not named first" if not named else "price is off"
    line.update(more or {})
    return line


def change_of(record, expected):
    """The override that the first finding asks for."""
    first = first_of(record)
    change = first and first["code"] in expected and first.get("change")
    return ["%s=%s" % (change["key"], change["value"])] if change else None


def priced_and_fixed(b, name, expected, config, planted, removed, own=None, rounds=1):
    """removed: overrides without the fault; None = the first finding's change."""
    faulty = b.measure(config, planted, True, own=own)
    how = removed if removed is not None else change_of(faulty, expected)
    if how is None:
        return judge(name, expected, faulty, None)
    keys = [o.split("=", 1)[0] for o in how]
    kept = [o for o in planted if o.split("=", 1)[0] not in keys]
    changed_own = fixed_own(own, how)
    savings = []
    for i in range(rounds):
        if how[0].startswith("data.cache="):  # the first epoch fills it, which a sweep measures
            share = 1 - b.epoch_s(config, kept + how, 3, True) / b.epoch_s(config, planted, 3, True)
            savings.append(share * step_ms(faulty))
            continue
        base = faulty if i == 0 and rounds == 1 else b.measure(config, planted, False, own=own)
        share = saved_ms(base, b.measure(config, kept + how, False, own=changed_own)) / step_ms(base)
        savings.append(share * step_ms(faulty))
    return judge(name, expected, faulty, sorted(savings)[len(savings) // 2],
                 dict(removed=how, savings_ms=savings))


def only(batch):
    """The config's own setting alone."""
    return ["--benchmark-batch", "--batch-sizes", str(batch)]


def fixed_own(own, how):
    """Options that name values of the change are replaced too."""
    if not own:
        return own
    out = list(own)
    for o in how:
        key, value = o.split("=", 1)
        option = "--" + key.split(".")[-1].replace("_", "-")
        for spelled in (option, option + "s"):
            if spelled in out:
                out[out.index(spelled) + 1] = value
    return out


SET = """workload: supervised
model: %s
dataset: %s
transform: {train: '%s', val: '%s'}
optimizer: %s
data: {path: %s, batch_size: %d, num_workers: %d, cache: %s}
training: {epochs: 1, eval_interval: 0, precision: %s}
"""


def images_batch(b):
    return 32 if b.small else 128


def images(b, workers, transform="resize(size=32)"):
    size, count = ("96,96,3", 512) if b.small else ("192,192,3", 2048)
    path = b.data("images", size, count, images=True)
    model = "mlp(hidden=64)" if b.small else "resnet18"
    text = SET % (model, "folder", transform, "resize(size=32)", "sgd(lr=0.01)", path, images_batch(b), workers,
                  "none", b.fast())
    return b.config("images", text + ("" if b.gpu else "threads: 1\n"))


def resident(b, batch, precision, more=""):
    """A set in the device's memory, so that only computing counts."""
    path = b.data("small", "32,32,3", 1024 if b.small else 16384)
    model = "mlp(hidden=128)" if b.small else "resnet18"
    optimizer = "adamw(lr=1e-3)" if b.small else "sgd(lr=0.01, momentum=0.9)"
    return b.config("resident", SET % (model, "hdf5", "to_tensor", "to_tensor", optimizer, path, batch, 1,
                                       "auto", precision) + more)


def no_workers(b):
    return priced_and_fixed(b, "no workers, slow decode", ["io_wait"], images(b, 0), [], None,
                            own=only(images_batch(b)), rounds=b.rounds)


def slow_transform(b):
    """Small images for a model that needs little time: only the blur in the loader is slow."""
    large, small = "resize(size=%d)" % (96 if b.small else 128), "resize(size=32)"
    path = b.data("small-images", "64,64,3", 512 if b.small else 4096, images=True)
    batch = images_batch(b)
    text = SET % ("mlp(hidden=64)", "folder", large + " | gaussian_blur(kernel=63, sigma=(8, 9), p=1) | " + small, small,
                  "sgd(lr=0.01)", path, batch, len(os.sched_getaffinity(0)), "none", b.fast())
    config = b.config("small-images", text + ("" if b.gpu else "threads: 1\n"))
    return priced_and_fixed(b, "one slow transform", ["slow_transform"], config, [],
                            ["transform.train=%s | %s" % (large, small)], own=only(batch), rounds=b.rounds)


def device_transform(b):
    """The same blur on the GPU, which has the whole set."""
    if not b.gpu:
        raise Skip("needs a GPU")
    blur = "gaussian_blur(kernel=63, sigma=(8, 9), p=1) | center_crop(size=32)"
    config = b.config("device", SET % ("mlp(hidden=64)", "hdf5", blur, "center_crop(size=32)", "sgd(lr=0.01)",
                                       b.data("signals", "128,128,3", 4096), 128, 8, "gpu", "bf16"))
    return priced_and_fixed(b, "transforms on the GPU", ["slow_transform"], config, [],
                            ["transform.train=center_crop(size=32)"], own=only(128), rounds=b.rounds)


def pageable(b):
    if not b.gpu:
        raise Skip("needs a GPU")
    path = b.data("signals", "128,128,3", 4096)
    config = b.config("signals", SET % ("mlp(hidden=512)", "hdf5", "to_tensor", "to_tensor", "sgd(lr=0.01)", path,
                                        512, 8, "none", "bf16"))
    return priced_and_fixed(b, "pageable copies", ["h2d"], config, ["data.pin_memory=false"],
                            ["data.pin_memory=true"], own=only(512))


def small_batch(b):
    batch = 4 if b.small else 8
    config = resident(b, batch, b.fast())
    return priced_and_fixed(b, "batch too small", ["small_batch"], config, [], None, own=only(batch), rounds=b.rounds)


def full_precision(b):
    if b.fast() == "fp32":
        raise Skip("this CPU computes fastest in fp32")
    return priced_and_fixed(b, "full precision", ["precision"], resident(b, 512, "fp32"), [], None, own=only(512),
                            rounds=b.rounds)


def checkpoints(b):
    """The saving shows only in training: the time of a whole epoch, after the same beginning of both."""
    count = 1024 if b.small else 16384
    batch = 32 if b.small else 512
    config = resident(b, batch, b.fast(), "checkpoint: {interval: 1}\n")
    faulty = b.measure(config, [], True, own=only(batch))
    how = change_of(faulty, ["checkpoint"])
    if not how:
        return judge("checkpoint every step", ["checkpoint"], faulty, None)

    steps = count / batch
    savings = [1e3 * (b.epoch_s(config, []) - b.epoch_s(config, how)) / steps for i in range(b.rounds)]
    return judge("checkpoint every step", ["checkpoint"], faulty, sorted(savings)[len(savings) // 2],
                 dict(removed=how, savings_ms=savings))


def other_process(b):
    if not b.gpu:
        raise Skip("needs a GPU")
    config = resident(b, 512, "bf16")
    other = subprocess.Popen([b.brim, "train", config, "--device", b.device, "--output-dir",
                              os.path.join(b.folder, "other"), "--quiet", "training.epochs=100000",
                              "data.batch_size=2048", "training.precision=fp32"], cwd=b.folder,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(6)
        if other.poll() is not None:
            raise Skip("the other process ended by itself")
        faulty = b.measure(config, [], True, own=only(512))
    finally:
        other.terminate()
        other.wait(30)
    fixed = b.measure(config, [], False, own=only(512))
    return judge("another process on the GPU", ["shared_gpu"], faulty, saved_ms(faulty, fixed),
                 dict(sharing=faulty["sharing"]))


# --- CPU quota


def real_group(cpus):
    """Makes a control group with a quota and returns its folder; None if that is not possible."""
    for base, quota, files in (
            ("/sys/fs/cgroup", "cpu.max", {"cpu.max": "%d 100000" % (cpus * 100000)}),
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", {"cpu.cfs_period_us": "100000",
                                                         "cpu.cfs_quota_us": "%d" % (cpus * 100000)})):
        path = os.path.join(base, "brim-faults-%d" % os.getpid())
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            if not os.path.exists(os.path.join(path, quota)):
                raise OSError("no controller")
            for name, text in files.items():
                with open(os.path.join(path, name), "w") as f:
                    f.write(text)
            return path
        except OSError:
            try:
                os.rmdir(path)
            except OSError:
                pass
    return None


def join(path):
    def enter():
        with open(os.path.join(path, "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))
    return enter


def fake_group(folder, cpus):
    """A folder in place of /proc and /sys in which the group has a quota (BRIM_MACHINE_ROOT)."""
    root = os.path.join(folder, "machine")
    os.makedirs(root + "/proc/self", exist_ok=True)
    os.makedirs(root + "/sys/fs/cgroup/box", exist_ok=True)
    for name, text in (("/proc/self/cgroup", "0::/box\n"),
                       ("/sys/fs/cgroup/box/cpu.max", "%d 100000\n" % (cpus * 100000)),
                       ("/sys/fs/cgroup/box/cpu.stat", "throttled_usec 0\n")):
        with open(root + name, "w") as f:
            f.write(text)
    return root


def quota(b):
    """Runs on the CPU, on every machine: threads follow the quota."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        raise Skip("needs two cores")
    cpus = cores / (20 if b.small else 4)  # few enough to be free on a busy machine
    path = b.data("small", "32,32,3", 1024 if b.small else 16384)
    config = b.config("quota", SET % ("mlp(depth=3, hidden=1024)", "hdf5", "to_tensor", "to_tensor", "sgd(lr=0.01)",
                                      path, 256, 0, "auto", b.fast()))
    group = real_group(cpus)
    more = dict(preexec_fn=join(group)) if group else dict(env=dict(os.environ, BRIM_MACHINE_ROOT=fake_group(b.folder, cpus)))
    try:
        savings, faulty = [], None
        for i in range(b.rounds):
            limited = b.measure(config, [], i == 0, device="cpu", own=only(256), **more)
            faulty = faulty or limited
            savings.append(saved_ms(limited, b.measure(config, [], False, device="cpu", own=only(256))) / step_ms(limited) * step_ms(faulty))
    finally:
        if group:
            os.rmdir(group)
    return judge("CPU quota", ["cpu_quota"], faulty, sorted(savings)[len(savings) // 2],
                 dict(tree="real" if group else "faked", cpus=cpus, cores=cores, savings_ms=savings, quota=faulty["quota"]))


def few_envs(b):
    config = b.config("ars", open(os.path.join(ROOT, "configs", "quadruped-stand.yaml")).read())
    dirs = 2 if b.small else 16
    planted = ["ars.num_dirs=%d" % dirs, "ars.dir_chunk=%d" % dirs, "ars.top_dirs=%d" % dirs, "ars.num_envs=2"]
    return priced_and_fixed(b, "ARS with too few environments", ["few_threads", "few_envs"], config, planted, None,
                            own=["--num-envs", "2", "--num-dirs", str(dirs), "--dir-chunk", str(dirs)],
                            rounds=b.rounds)


def healthy(b):
    batch = 1024 if b.small else 2048  # small: the whole set
    record = b.measure(resident(b, batch, b.fast()), [], True, own=only(batch))
    first = first_of(record)
    low = [v for v in record["ceilings"].values() if v]
    share = record["throughput"]["samples_per_s"] / min(low) if len(low) == 2 else None
    return dict(fault="none", expected=[], first=first and first["code"], price_ms=first and first["cost_ms"],
                step_ms=step_ms(record), share_of_ceiling=share, notes=[f["code"] for f in record["findings"]],
                text=first and first["text"], remedy=first and first["remedy"],
                verdict="ok" if not first else "finds something in a healthy run")


FAULTS = dict(workers=no_workers, transform=slow_transform, device=device_transform, pageable=pageable, batch=small_batch,
              precision=full_precision, checkpoint=checkpoints, process=other_process, quota=quota, envs=few_envs,
              healthy=healthy)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default=os.path.join(ROOT, "build", "bin", "brim"))
    p.add_argument("--device", default="cuda")
    p.add_argument("--small", action="store_true", help="small models and data, for a CPU of a few cores")
    p.add_argument("--rounds", type=int, help="comparisons per fault; the median counts (GPU: 1, CPU: 3)")
    p.add_argument("--only", nargs="+", choices=sorted(FAULTS), help="these faults alone")
    p.add_argument("--record", help="append the lines to this file, too")
    args = p.parse_args()
    args.brim = os.path.abspath(args.brim)
    if not os.path.exists(args.brim):
        sys.exit("no brim at %s: build it, or name it with --brim" % args.brim)
    folder = tempfile.mkdtemp(prefix="brim-faults-")
    b = Bench(args, folder)
    b.rounds = args.rounds or (1 if b.gpu else 3)
    bad = 0
    try:
        for name, fault in FAULTS.items():
            if args.only and name not in args.only:
                continue
            began = time.monotonic()
            try:
                line = fault(b)
            except Skip as e:
                line = dict(fault=name, verdict="skipped", why=str(e))
            except (subprocess.TimeoutExpired, OSError, KeyError, IndexError, ValueError) as e:
                line = dict(fault=name, verdict="failed", why="%s: %s" % (type(e).__name__, e))
            line["case"], line["device"], line["seconds"] = name, args.device, round(time.monotonic() - began, 1)
            bad += line["verdict"] not in ("ok", "skipped")
            text = json.dumps(line)
            print(text, flush=True)
            if args.record:
                with open(args.record, "a") as f:
                    f.write(text + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
