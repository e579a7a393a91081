#!/usr/bin/env python3
"""Another process takes all of the GPU's memory in the middle of a run: it has to continue, and a resumed run with it.

  benchmarks/compare/oom_midrun.py --build build --output benchmarks/results/oom-midrun-h200.jsonl
  benchmarks/compare/oom_midrun.py --build build --device cpu --small     tries the script itself: no process comes

configs/stl10_config.yaml (SimCLR, 128 x 4) on STL-10-shaped noise. The holder comes when the log has --step steps,
long before the first evaluation, and stays to the end. Scenarios: as the config is; once more, with the algorithms
that the first one measured; evaluated on images of another size; with the heuristic's algorithms instead of measured
ones; both. Where nothing is measured, libraries load the evaluation's kernels when it comes. What they find no memory
for is answered with smaller micro-batches. Then the run is resumed with the memory free from the first checkpoint
after the last such change that has one (after the holder came, where nothing had to change), and must end in the same
weights, to the byte.
Writes a line per run: exit status, what was adapted at which step, what was warned of, what the resumed run began
with, whether bytes are the same.
Exits 1 when a run ends otherwise than well, bytes differ, the holder did not hold, or nothing was adapted in any."""
import argparse, glob, hashlib, json, os, random, re, subprocess, sys, tempfile, time

import common
import gpu

OTHER = ["transform.val=resize(size=128)"]
HEURISTIC = ["gpu.cudnn_benchmark=false"]
SCENARIOS = [("as the config is", [], "cache0"), ("algorithms known from an earlier run", [], "cache0"),
             ("judged on 128 x 128", OTHER, "cache1"), ("nothing measured", HEURISTIC, "cache2"),
             ("nothing measured, judged on 128 x 128", HEURISTIC + OTHER, "cache3")]
SMALL = ["model=simclr(backbone=resnet18(width=4), hidden=16, dim=8)", "data.batch_size=8", "data.num_workers=1",
         "contrastive.knn_k=5"]


def make_data(folder, unlabeled, labelled):
    """Makes STL-10's files from noise."""
    r = random.Random(0)
    for name, count in (("unlabeled", unlabeled), ("train", labelled), ("test", labelled)):
        with open(os.path.join(folder, name + "_X.bin"), "wb") as f:
            for _ in range(count):
                f.write(r.randbytes(96 * 96 * 3))
        if name != "unlabeled":
            with open(os.path.join(folder, name + "_y.bin"), "wb") as f:
                f.write(bytes(r.randrange(1, 11) for _ in range(count)))


def events(folder):
    """Lines of log.jsonl so far, without a last line that is still being written."""
    try:
        with open(os.path.join(folder, "log.jsonl")) as f:
            return [json.loads(l) for l in f if l.endswith("}\n")]
    except OSError:
        return []


def newest(folder):
    return max((e.get("step", 0) for e in events(folder)), default=0)


def parts(path):
    """The metadata of a safetensors file, and its tensors: their places and their bytes, as one hash."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        words = header.pop("__metadata__", {})
        return words, hashlib.sha256(json.dumps(header, sort_keys=True).encode() + f.read()).hexdigest()[:16]


class Run:
    def __init__(self, a, scratch, name, words, cache):
        self.a, self.folder = a, os.path.join(scratch, name)
        self.argv = [a.brim, "train", os.path.join(common.HERE, "..", "..", "configs", "stl10_config.yaml"),
                     "--data-path", os.path.join(scratch, "data"), "--device", a.device, "--output-dir", self.folder,
                     "training.epochs=%d" % a.epochs, "training.eval_interval=%d" % a.eval_interval,
                     "training.warmup_epochs=1", "contrastive.probe_epochs=2", "log.interval=1",
                     "checkpoint.interval=%d" % a.interval, "checkpoint.keep=99",
                     *(SMALL if a.small else []), *words]
        self.env = dict(os.environ, XDG_CACHE_HOME=os.path.join(scratch, cache), LC_ALL="C")

    def start(self):
        self.child = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                      env=self.env)

    def reach(self, step):
        """Waits until the log has the step; False if the run ends first, or takes too long."""
        end = time.monotonic() + self.a.limit
        while newest(self.folder) < step:
            if self.child.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def stop(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def finish(self):
        try:
            errors = self.child.communicate(timeout=self.a.limit)[1]
        except subprocess.TimeoutExpired:
            self.stop()
            errors = "took more than %g s" % self.a.limit
        self.words = [l for l in errors.splitlines() if l.strip() and " has " not in l and " samples/s " not in l]
        return self.child.returncode


def adaptions(folder):
    return [{k: e[k] for k in ("step", "batch_size", "accumulation") if k in e}
            for e in events(folder) if e["event"] == "adapt"]


def resume_point(folder, marks):
    """The first kept checkpoint after the last of these steps that has one."""
    steps = sorted((int(re.search(r"step-(\d+)", p)[1]), p) for p in glob.glob(os.path.join(folder, "step-*.safetensors")))
    later = [[at for at in steps if at[0] > mark] for mark in sorted(marks, reverse=True)]
    return next((found[0] for found in later if found), (None, None))


def scenario(a, scratch, number, name, words, cache):
    run = Run(a, scratch, "run%d" % number, words, cache)
    row = dict(benchmark="oom-midrun", scenario=name, words=words, device=a.name)
    run.start()
    came, code = 0, None
    try:
        if run.reach(a.step) and a.cuda:
            with gpu.Holder("--gpu", str(a.gpu), "--leave", "0MiB") as holder:
                came = newest(run.folder)
                left = a.card.free()
                code = run.finish()
                row.update(holder_had_it_at_step=came, left_mib=round(left / gpu.MIB),
                           holder_stayed=holder.child.poll() is None and left < 64 * gpu.MIB)
        else:
            code = run.finish()
    finally:
        run.stop()
    row.update(exit=code, steps=newest(run.folder), adapted=adaptions(run.folder),
               warned=[re.sub(r"^brim: ", "", l)[:200] for l in run.words])
    row["knn"] = [e["knn"] for e in events(run.folder) if e["event"] == "epoch" and e.get("knn") is not None]
    if code == 0:
        resume(a, scratch, number, words, cache, row, run, came)
    row["good"] = code == 0 and row["same_bytes"] and (not a.cuda or row.get("holder_stayed", False))
    return row


def resume(a, scratch, number, words, cache, row, run, came):
    at, path = resume_point(run.folder, [came] + [e["step"] for e in row["adapted"]])
    row.update(resumed_from_step=at, same_bytes=False)
    if path is None:
        return
    row["resumed_as"] = parts(path)[0].get("brim.adapted")
    again = Run(a, scratch, "again%d" % number, words + ["--resume-from", path], cache)
    again.start()
    row["resumed_exit"] = again.finish()
    if row["resumed_exit"]:
        row["resumed_said"] = again.words[-3:]
        return
    ends = [parts(os.path.join(r.folder, "model.safetensors"))[1] for r in (run, again)]
    row["same_bytes"] = ends[0] == ends[1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="build folder")
    p.add_argument("--device", default="cuda", help="brim's; another than cuda is left in peace")
    p.add_argument("--name", default="GPU", help="of the device, for the records")
    p.add_argument("--step", type=int, default=5, help="the holder comes after this one")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--eval-interval", type=int, default=2)
    p.add_argument("--interval", type=int, default=35, help="steps between checkpoints")
    p.add_argument("--limit", type=float, default=120, help="seconds of one run")
    p.add_argument("--only", type=int, nargs="+", default=range(len(SCENARIOS)),
                   help="of the scenarios, from 0; 1 goes with 0")
    p.add_argument("--small", action="store_true", help="a network and data for any machine")
    p.add_argument("--output", help="append the lines here too")
    a = p.parse_args()
    a.brim = os.path.abspath(os.path.join(a.build, "bin", "brim"))
    a.cuda = a.device.split(":")[0] == "cuda"
    a.gpu = int(a.device.partition(":")[2] or 0)
    a.card = gpu.open_gpu(a.gpu) if a.cuda else None
    if a.small:
        a.epochs, a.eval_interval, a.interval = 2, 1, 3
    bad, adapted = 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(os.path.join(scratch, "data"))
        make_data(os.path.join(scratch, "data"), 160 if a.small else 15360, 40 if a.small else 1000)
        for i in a.only:
            name, words, cache = SCENARIOS[i]
            row = scenario(a, scratch, i, name, words, cache)
            line = json.dumps(row)
            print(line, flush=True)
            if a.output:
                with open(a.output, "a") as f:
                    f.write(line + "\n")
            bad += not row["good"]
            adapted += bool(row["adapted"])
    if a.cuda and not adapted:
        print("nothing had to be adapted", file=sys.stderr)
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
