#!/usr/bin/env python3
"""Another process holds the GPU's memory: brim must name the process and what would fit, and stay healthy.

  benchmarks/compare/oom.py --build build

  1  All but --leave is held. `brim train` with a large batch exits with the code for memory and a message
     that names the holder, how much it holds, and the largest batch that fits; that batch then runs.
  2  `brim bench` of a large and a small batch in one process: the large one is reported, the small one runs.
  3  The holder comes while brim starts (it sees brim arrive, waits some ms and takes all that is free): brim
     ends with the message or, when it has all it needs already, well; never by a signal, never otherwise. One
     that could not even open the device has planned nothing yet and knows no batch: counted apart.
     The same under `brim bench`, where the holder leaves enough for the small batch: that one must run.

Where NVML does not list processes (some containers), the message has to tell what unseen ones hold.
Exits 1 when anything is not so."""
import argparse, json, os, re, subprocess, sys, tempfile, time

import gpu

EXIT_MEMORY = 4
DATA = "dataset=synthetic(shape=(32, 32, 3), classes=10, samples=1000000, val_samples=64)"
TRIES = 4  # a first process does not know yet how much CUDA and its libraries will take


class Test:
    def __init__(self, a, card, scratch):
        self.a, self.card, self.scratch, self.bad, self.runs = a, card, scratch, 0, 0

    def check(self, good, text):
        print("  %-4s %s" % ("ok" if good else "BAD", text), flush=True)
        self.bad += not good
        return good

    def brim(self, command, *words):
        """Exit status, events, standard error, seconds."""
        self.runs += 1
        argv = [self.a.brim, command, DATA, "model=resnet18", "training.precision=bf16", "gpu.cudnn_benchmark=false",
                "data.num_workers=1", "--device", self.a.device, "--json",
                "--output-dir", os.path.join(self.scratch, str(self.runs)), *words]
        env = dict(os.environ, XDG_CACHE_HOME=os.path.join(self.scratch, "cache"))
        started = time.monotonic()
        try:
            r = subprocess.run(argv, capture_output=True, text=True, timeout=self.a.limit, env=env)
        except subprocess.TimeoutExpired:
            return None, [], "took more than %g s" % self.a.limit, self.a.limit
        events = [json.loads(l) for l in r.stdout.splitlines() if l.startswith("{")]
        return r.returncode, events, r.stderr, time.monotonic() - started

    def train(self, batch):
        code, events, errors, seconds = self.brim("train", "data.batch_size=%d" % batch, "--max-steps", "6")
        message = next((e["message"] for e in events if e["event"] == "error"), errors.strip()[-400:])
        return code, message, seconds

    def names_holder(self, message, holder):
        """True if the message names the holder by pid, or mentions invisible processes if pids are unknown."""
        known = self.card.processes()
        if holder.pid in known:
            amount = "memory too" if known[holder.pid] is None else r"[\d.,]+ [GT]iB"
            return self.check(re.search(r"pid %d\b[^;]* holds %s" % (holder.pid, amount), message),
                              "names the holder: pid %d" % holder.pid)
        told = re.search(r"(cannot be seen from here hold|another container's process[^;]* holds) [\d.,]+ [GT]iB", message)
        return self.check(told, "NVML lists %s, not pid %d: tells what unseen processes hold" % (
            sorted(known) or "nobody", holder.pid))

    def trials(self, large, small):
        code, events, errors, seconds = self.brim("bench", "--batch-sizes", str(large), str(small), "--num-workers", "1",
                                                  "--precisions", "bf16", "--steps", "3")
        rows = [e["result"] for e in events if e["event"] == "trial"]
        rows = {r["what"]["setting"]["batch_size"]: r for r in rows}
        return code, rows, errors, seconds


def largest(message):
    m = re.search(r"batch_size (\d+) is the largest that fits", message)
    return int(m[1]) if m else None


def outcome(row):
    if row is None:
        return "missing"
    if row["failure"]:
        return row["failure"]["class"]
    return "%.0f samples/s" % row["throughput"]["samples_per_s"]


def is_oom(row):
    return bool(row and row["failure"] and row["failure"]["class"] in ("oom_planned", "oom_device"))


def held(t, a):
    print("1 brim train, all but %s held" % a.leave)
    with gpu.Holder("--gpu", str(a.gpu), "--leave", a.leave) as holder:
        code, message, seconds = t.train(a.batch)
        print("  batch %d, %.1f s, exit %s: %s" % (a.batch, seconds, code, message))
        t.check(code == EXIT_MEMORY, "exit %s" % code)
        t.names_holder(message, holder)
        fits = largest(message)
        t.check(fits is not None and 0 < fits < a.batch, "says the largest batch that fits: %s" % fits)
        follow(t, fits)
        print("2 brim bench of %d and %d in one process" % (a.batch, a.small))
        code, rows, errors, seconds = t.trials(a.batch, a.small)
        big, little = rows.get(a.batch), rows.get(a.small)
        t.check(code == 0, "exit %s, %.1f s%s" % (code, seconds, "" if code == 0 else ": " + errors.strip()[-300:]))
        t.check(is_oom(big), "batch %d: %s" % (a.batch, outcome(big)))
        if is_oom(big):
            t.names_holder(big["failure"]["message"], holder)
        t.check(little is not None and not little["failure"], "batch %d: %s" % (a.small, outcome(little)))


def follow(t, fits):
    """Runs the batch that is reported to fit; or, once the overhead is known, the next one reported."""
    for attempt in range(TRIES):
        if not fits:
            return
        code, message, seconds = t.train(fits)
        if code != EXIT_MEMORY:
            break
        print("  batch %d did not fit after all: %s" % (fits, message))
        less = largest(message)
        fits = less if less and less < fits else None
    t.check(code == 0, "batch %s, said to fit, runs (attempt %d): exit %s%s" % (
        fits, attempt + 1, code, "" if code == 0 else ": " + message[-300:]))


def race(t, a):
    print("3 the holder comes while brim starts; free before: %s" % a.race_free)
    seen = {}
    for ms in a.after:
        with gpu.Holder("--gpu", str(a.gpu), "--first", a.race_free, "--leave", "16MiB", "--come", "64MiB", "--after",
                        str(ms)) as holder:
            code, message, seconds = t.train(a.race_batch)
            took = holder.line(0.5)
        # without a message about batches the device could not even be opened: nothing was planned yet
        told = largest(message) is not None or "no batch_size fits" in message
        kind = {0: "ran", EXIT_MEMORY: "message" if told else "message without batch"}.get(code, "exit %s" % code)
        good = code in (0, EXIT_MEMORY)
        seen[kind] = seen.get(kind, 0) + 1
        t.check(good, "train, %g ms: exit %s, %.1f s, holder %s%s" % (
            ms, code, seconds, took or "never came", "" if code == 0 else ": " + message[:a.show]))
    for ms in a.after[:3]:
        with gpu.Holder("--gpu", str(a.gpu), "--first", a.race_free, "--leave", a.leave, "--come", "64MiB", "--after",
                        str(ms)) as holder:
            code, rows, errors, seconds = t.trials(a.race_batch, a.small)
            took = holder.line(0.5)
        big, little = rows.get(a.race_batch), rows.get(a.small)
        good = code == 0 and big and (is_oom(big) or not big["failure"]) and little and not little["failure"]
        t.check(good, "bench, %g ms: exit %s, %.1f s, %d: %s, %d: %s, holder %s%s" % (
            ms, code, seconds, a.race_batch, outcome(big), a.small, outcome(little), took or "never came",
            "" if good else ": " + ((big or {}).get("failure") or {}).get("message", errors.strip())[-300:]))
        seen[outcome(big).split()[-1]] = seen.get(outcome(big).split()[-1], 0) + 1
    print("  ended with: %s" % ", ".join("%s %d" % i for i in seen.items()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="build folder")
    p.add_argument("--device", default="cuda", help="brim's")
    p.add_argument("--gpu", type=int, default=0, help="NVML's and the driver's number of the same GPU")
    p.add_argument("--leave", default="2.5GiB", help="what the holder leaves; the small batch must fit in it")
    p.add_argument("--batch", type=int, default=4096, help="must not fit in --leave")
    p.add_argument("--small", type=int, default=64)
    p.add_argument("--race-free", default="24GiB", help="what is free until the holder comes")
    p.add_argument("--race-batch", type=int, default=1024, help="must fit in --race-free, not in --leave")
    p.add_argument("--after", type=float, nargs="+", default=[0, 100, 200, 300, 500, 800], metavar="MS")
    p.add_argument("--skip", nargs="+", default=[], choices=["held", "race"])
    p.add_argument("--show", type=int, default=160, help="characters of a race's message")
    p.add_argument("--limit", type=float, default=40, help="seconds of one process")
    a = p.parse_args()
    a.brim = os.path.abspath(os.path.join(a.build, "bin", "brim"))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        t = Test(a, gpu.open_gpu(a.gpu), scratch)
        if "held" not in a.skip:
            held(t, a)
        if "race" not in a.skip:
            race(t, a)
    print("%d processes, %d checks bad, %.0f s" % (t.runs, t.bad, time.monotonic() - started))
    return 1 if t.bad else 0


if __name__ == "__main__":
    sys.exit(main())
