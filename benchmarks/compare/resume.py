#!/usr/bin/env python3
"""Killed with SIGKILL and resumed equals uninterrupted, byte for byte, with a convnet in mixed precision.

  benchmarks/compare/resume.py --build build --data /path/to/cifar10
  benchmarks/compare/resume.py --build build --device ref --precision fp16 --small

For each precision: one run without interruption; then the same killed when its last checkpoint has passed a
quarter, half and three quarters of the steps (and a little later, so that it dies between checkpoints), each
time resumed with an empty cache: the choice of algorithms has to come out of the checkpoint. The three files
a run leaves must be the same. Without --data images are synthetic. Exits 1 when a byte differs."""
import argparse, hashlib, json, os, struct, subprocess, sys, tempfile, time

FILES = ["last.safetensors", "best.safetensors", "model.safetensors"]
SYNTHETIC = "synthetic(shape=(%d, %d, 3), classes=10, samples=%d, val_samples=%d)"


def metadata(path):
    """__metadata__ of a safetensors file; {} if there is none yet."""
    try:
        with open(path, "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            return json.loads(f.read(n)).get("__metadata__", {})
    except (OSError, struct.error, ValueError):
        return {}


def step_of(folder):
    return int(metadata(os.path.join(folder, FILES[0])).get("brim.step", 0))


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


def command(a, precision, folder, resume):
    side = 8 if a.small and not a.data else 32
    samples = a.steps * a.batch
    data = (["dataset=cifar10", "data.path=" + a.data, "data.limit=%d" % samples] if a.data else
            ["dataset=" + SYNTHETIC % (side, side, samples, 2 * a.batch)])
    model = "resnet18(width=4)" if a.small else a.model
    argv = [a.brim, "train", *data, "model=" + model,
            "transform.train=random_crop(size=%d, padding=2) | random_flip | cutout(size=%d)" % (side, side // 4),
            "optimizer=sgd(lr=0.1, momentum=0.9, nesterov=true, weight_decay=5e-4)", "scheduler=cosine",
            "data.batch_size=%d" % a.batch, "data.num_workers=2", "training.precision=" + precision,
            "training.epochs=%d" % a.epochs, "checkpoint.interval=%d" % a.interval,
            "gpu.cudnn_benchmark=%s" % ("false" if a.no_measure else "true"), "--device", a.device,
            "--output-dir", folder, "--quiet"]
    return argv + (["--threads", "2"] if a.device in ("cpu", "ref") else []) + (["--resume"] if resume else [])


def start(a, precision, folder, resume, cache):
    return subprocess.Popen(command(a, precision, folder, resume), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, env=dict(os.environ, XDG_CACHE_HOME=cache))


def finish(child, limit):
    try:
        errors = child.communicate(timeout=limit)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise RuntimeError("took more than %g s" % limit)
    if child.returncode:
        raise RuntimeError("exit %d: %s" % (child.returncode, errors.strip()[-400:]))
    return errors.strip()


def kill_at(a, child, folder, step, later_s):
    """True if the run was killed at or after that step; False if it had ended before."""
    end = time.monotonic() + a.limit
    while step_of(folder) < step and child.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(later_s)
    child.kill()
    child.communicate()
    if child.returncode == -9 and step_of(folder) >= step:
        return True
    if child.returncode not in (0, -9):
        raise RuntimeError("exit %d while it was to be killed" % child.returncode)
    return False


def compare(a, precision, scratch):
    whole, cut, cache = (os.path.join(scratch, precision + n) for n in ("-whole", "-cut", "-cache"))
    started = time.monotonic()
    said = finish(start(a, precision, whole, False, cache), a.limit)
    seconds = time.monotonic() - started
    total = step_of(whole)
    killed = []
    for k in range(a.kills):
        at = max(1, total * (k + 1) // (a.kills + 1))
        # the first part uses the cache of the uninterrupted run, because a new timing may choose other algorithms
        now = cache if k == 0 else cache + str(k)
        child = start(a, precision, cut, k > 0, now)
        if not kill_at(a, child, cut, at, 0.002 * (k % 3)):
            raise RuntimeError("it ended before it could be killed at step %d of %d: more --steps" % (at, total))
        killed.append(step_of(cut))
    warned = finish(start(a, precision, cut, True, cache + "-last"), a.limit)
    sums = [[digest(os.path.join(f, n)) for n in FILES] for f in (whole, cut)]
    same = sums[0] == sums[1]
    m = metadata(os.path.join(whole, FILES[0]))
    print("%-5s %s: %d steps in %.1f s, killed after the checkpoints of steps %s; %s skipped, %d algorithms; %s" % (
        precision, "same" if same else "DIFFERENT", total, seconds, ", ".join(map(str, killed)),
        m.get("brim.skipped_steps"), m.get("brim.algorithms", "").count("\n"),
        "  ".join("%s %s%s" % (n.split(".")[0], x, "" if x == y else " and " + y)
                  for n, x, y in zip(FILES, *sums))), flush=True)
    for text in filter(None, (said, warned)):
        print("  said: " + text[-300:])
    if not same:
        n = metadata(os.path.join(cut, FILES[0]))
        for k in sorted(set(m) | set(n)):
            mine, other = str(m.get(k)).split("\n"), str(n.get(k)).split("\n")
            for line in [x for x in mine if x not in other]:
                print("  %s: whole has   %s" % (k, line[:160]))
            for line in [x for x in other if x not in mine]:
                print("  %s: resumed has %s" % (k, line[:160]))
    return same and total == a.steps * a.epochs


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="build folder")
    p.add_argument("--data", help="folder of CIFAR-10's binary files, or one with cifar-10-batches-bin")
    p.add_argument("--device", default="cuda")
    p.add_argument("--precision", nargs="+", default=["bf16", "fp16"])
    p.add_argument("--model", default="resnet18(width=16)")
    p.add_argument("--small", action="store_true", help="resnet18(width=4), synthetic images of 8x8: for CPUs")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=60, help="of an epoch")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--interval", type=int, default=7, help="steps between checkpoints")
    p.add_argument("--kills", type=int, default=3)
    p.add_argument("--no-measure", action="store_true", help="algorithms are not timed")
    p.add_argument("--limit", type=float, default=60, help="seconds of one process")
    a = p.parse_args()
    a.brim = os.path.abspath(os.path.join(a.build, "bin", "brim"))
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for precision in a.precision:
            try:
                bad += not compare(a, precision, scratch)
            except (RuntimeError, OSError) as e:
                print("%-5s FAILED: %s" % (precision, e), flush=True)
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
