#!/usr/bin/env python3
"""Joint throughput of small experiments on one GPU: one at a time, taking turns, and at once through MPS.

  benchmarks/lab/pack.py --output benchmarks/results/pack-h200.jsonl
  benchmarks/lab/pack.py --device cpu --small                   tries the script itself, in seconds

Starts `brim train` processes that differ in their seed, waits until all of them make steps, and counts their steps over
a window after a warm-up. Two experiments: an MLP on generated samples of MNIST's shape (configs/mnist-mlp.yaml), and
ARS on the quadruped (configs/quadruped-stand.yaml). Modes:

  alone    one process; the median of --repeats windows, each of a new process
  turns    so many processes, which the driver lets take turns
  mps      the same through a daemon of NVIDIA's MPS in a folder of its own, where it can be started
  bits     the last checkpoints of a short run, alone and beside the others, byte for byte
  sweep    `brim sweep` with per_gpu: auto: how many it keeps on the GPU, and the gain it measured

Writes a JSON line per measurement: steps_per_s of all together, gain against alone, steps_per_s of the slowest and the
fastest process, failures. Exit status 1 when a process failed or bits differ. Predictions are in
docs/performance/packing.md."""
import argparse, hashlib, json, os, shutil, signal, statistics, subprocess, sys, tempfile, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXPERIMENTS = {
    "mlp": {"words": [os.path.join(ROOT, "configs", "mnist-mlp.yaml"),
                      "dataset=synthetic(shape=(28, 28, 1), classes=10, samples=60000, val_samples=1000)",
                      "training.eval_interval=0"],
            "long": ["training.epochs=1000000"], "short": ["training.steps=%d"],
            "small": ["model=mlp(depth=1, hidden=32)", "data.batch_size=32"]},
    "ars": {"words": [os.path.join(ROOT, "configs", "quadruped-stand.yaml"), "ars.eval_episodes=0"],
            "long": ["ars.iterations=100000000"], "short": ["ars.iterations=%d"],
            "small": ["ars.num_envs=2", "ars.num_dirs=4", "ars.dir_chunk=4", "ars.top_dirs=2", "ars.episode_length=20"]},
}


class Run:
    """A training, and the steps it has reported with their times."""

    def __init__(self, a, words, folder, env):
        self.points, self.lock, self.error = [], threading.Lock(), ""
        command = [a.brim, "train", *words, "--device", a.device, "--json", "--output-dir", folder]
        self.stderr = open(folder + ".stderr", "w+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.stderr, text=True, env=env,
                                        stdin=subprocess.DEVNULL, start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("event") == "error":
                self.error = "%s: %s" % (event.get("class"), event.get("message"))
            if event.get("event") != "progress" or not event.get("title", "").startswith("epoch "):
                continue
            epoch = int(event["title"].split()[1].split("/")[0])
            with self.lock:
                self.points.append((time.monotonic(), (epoch - 1) * event["total"] + event["done"]))

    def steps(self):
        with self.lock:
            return list(self.points)

    def rate(self, start, end):
        """Steps/s between the first report after `start` and the last before `end`; None: too few."""
        inside = [p for p in self.steps() if start <= p[0] <= end]
        if len(inside) < 2 or inside[-1][0] <= inside[0][0]:
            return None
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(10)
        self.stderr.seek(0)
        text = self.stderr.read().strip()
        self.stderr.close()
        return self.process.returncode, self.error or text[-300:]


class Mps:
    """A control daemon for one GPU, started as brim starts it. `reason` is set if it does not run."""

    def __init__(self, a, folder):
        self.process, self.reason = None, ""
        self.env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
        self.program = shutil.which(a.mps_program)
        if not self.program:
            self.reason = "%s is not installed" % a.mps_program
            return
        self.output = open(os.path.join(folder, "daemon.txt"), "w+")
        self.process = subprocess.Popen([self.program, "-f"], env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)
        for _ in range(100):
            if os.path.exists(os.path.join(folder, "control")):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.output.seek(0)
        self.reason = "it did not start: " + (self.output.read().strip()[-200:] or "no output")

    def client(self, percent):
        """The environment of a client that may use this percentage of the multiprocessors; 0: all of them."""
        return dict(self.env, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="%g" % percent) if percent else self.env

    def close(self):
        if not self.process:
            return
        if self.process.poll() is None:
            subprocess.run([self.program], input="quit\n", text=True, env=self.env, timeout=30, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def memory_used(a):
    """MiB in use on the first GPU, by nvidia-smi; None without one."""
    if a.device == "cpu" or not shutil.which("nvidia-smi"):
        return None
    r = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                       capture_output=True, text=True, check=False)
    return float(r.stdout.split()[0]) if r.returncode == 0 and r.stdout.split() else None


def words_of(a, name, seed, length):
    e = EXPERIMENTS[name]
    return e["words"] + (e["small"] if a.small else []) + length + ["seed=%d" % seed, "threads=%d" % a.threads]


def start_all(a, name, count, env, folder):
    return [Run(a, words_of(a, name, seed, EXPERIMENTS[name]["long"]), os.path.join(folder, "%s-%d" % (name, seed)), env)
            for seed in range(count)]


def window(a, name, count, env):
    """Rates of `count` processes over a window after the warm-up, and the failures."""
    folder = tempfile.mkdtemp(prefix="brim-pack-")
    runs = start_all(a, name, count, env, folder)
    try:
        deadline = time.monotonic() + a.start_limit
        while time.monotonic() < deadline and not all(r.steps() or r.process.poll() is not None for r in runs):
            time.sleep(0.05)
        time.sleep(a.warmup)
        start = time.monotonic()
        time.sleep(a.window)
        end = time.monotonic()
        while end < start + a.start_limit and not all(r.rate(start, end) or r.process.poll() is not None for r in runs):
            time.sleep(0.05)  # a process that reports seldom
            end = time.monotonic()
        used = memory_used(a)
        failures = [r.process.returncode for r in runs if r.process.poll() is not None]
        rates = [r.rate(start, end) for r in runs]
        for r in runs:
            r.stop()
        ends = [r.wait(60) for r in runs]
        texts = sorted({text for code, text in ends if code not in (0, 130)})
        missing = sum(rate is None for rate in rates)
        return {"rates": [r for r in rates if r is not None], "missing": missing, "ended_early": len(failures),
                "messages": texts[:3], "memory_used_mib": used}
    finally:
        for r in runs:
            if r.process.poll() is None:
                r.process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def record(name, mode, count, measured, alone):
    rates = measured["rates"]
    total = sum(rates)
    return {"experiment": name, "mode": mode, "processes": count, "steps_per_s": total,
            "gain": total / alone if alone else None, "slowest": min(rates) if rates else None,
            "fastest": max(rates) if rates else None, "ended_early": measured["ended_early"],
            "without_steps": measured["missing"], "messages": measured["messages"],
            "memory_used_mib": measured["memory_used_mib"]}


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def short_runs(a, name, seeds, at_once, env):
    """SHA-256 of the last checkpoint for each seed. A process that failed has its message instead."""
    folder, out = tempfile.mkdtemp(prefix="brim-bits-"), {}
    length = [w % a.bit_steps for w in EXPERIMENTS[name]["short"]]
    try:
        for i in range(0, len(seeds), at_once):
            runs = {s: Run(a, words_of(a, name, s, length), os.path.join(folder, str(s)), env) for s in seeds[i:i + at_once]}
            for s, r in runs.items():
                code, text = r.wait(a.start_limit + 300)
                path = os.path.join(folder, str(s), "last.safetensors")
                out[s] = digest(path) if code == 0 and os.path.exists(path) else "exit %d: %s" % (code, text)
        return out
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bits(a, name, env, mode):
    compared = list(range(min(4, a.experiments)))
    alone = short_runs(a, name, compared, 1, None)
    packed = short_runs(a, name, list(range(a.experiments)), a.experiments, env)
    same = [s for s in compared if alone[s] == packed[s] and not alone[s].startswith("exit")]
    failed = sorted({v for v in list(alone.values()) + list(packed.values()) if v.startswith("exit")})
    return {"experiment": name, "mode": "bits", "beside": mode, "processes": a.experiments, "steps": a.bit_steps,
            "compared": len(compared), "same": len(same), "messages": failed[:3]}


def sweep(a, name):
    """Runs `brim sweep` with per_gpu: auto for a while; returns the GPU in `status` at the end."""
    folder = tempfile.mkdtemp(prefix="brim-sweep-")
    place = os.path.join(folder, "store")
    words = [w for w in words_of(a, name, 0, EXPERIMENTS[name]["long"]) if not w.startswith("seed=")]
    command = [a.brim, "sweep", *words, "seeds=%d" % a.experiments, "per_gpu=auto", "--store", place, "--output-dir", place,
               "--json"] + (["--device", a.device] if a.device == "cpu" else [])
    log = open(os.path.join(folder, "out.txt"), "w")
    p = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline, view = time.monotonic() + a.sweep_seconds, None
        while time.monotonic() < deadline and p.poll() is None:
            time.sleep(min(5, a.sweep_seconds))
            r = subprocess.run([a.brim, "sweep", "status", place, "--json"], capture_output=True, text=True, check=False)
            if r.returncode == 0 and r.stdout.strip():
                view = r.stdout.strip().split("\n")
        p.send_signal(signal.SIGTERM)
        try:
            code = p.wait(120)
        except subprocess.TimeoutExpired:
            p.kill()
            code = p.wait()
        lines = [json.loads(v) for v in view or [] if v.startswith("{")]
        log.close()
        with open(log.name) as f:
            tail = f.read().split("\n")[-6:]
        last = lines[0] if lines else {}
        return {"experiment": name, "mode": "sweep", "seconds": a.sweep_seconds, "exit_code": code,
                "running": last.get("counts", {}).get("running"), "gpus": last.get("gpus"),
                "messages": [] if code == 130 else tail}
    finally:
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def measure(a, name, write):
    alone = statistics.median([sum(window(a, name, 1, None)["rates"]) for _ in range(a.repeats)])
    write({"experiment": name, "mode": "alone", "processes": 1, "repeats": a.repeats, "steps_per_s": alone, "gain": 1})
    ok = alone > 0
    for count in a.levels:
        r = record(name, "turns", count, window(a, name, count, None), alone)
        write(r)
        ok = ok and not r["ended_early"]
    folder = tempfile.mkdtemp(prefix="brim-mps-")
    mps = Mps(a, folder)
    try:
        if mps.reason:
            write({"experiment": name, "mode": "mps", "reason": mps.reason})
        for count, percent in [] if mps.reason else [(c, p) for c in a.levels for p in a.percents]:
            r = record(name, "mps", count, window(a, name, count, mps.client(percent)), alone)
            write(dict(r, percent=percent))
            ok = ok and not r["ended_early"]
        if "bits" in a.modes:
            r = bits(a, name, None if mps.reason else mps.client(a.percents[-1]), "turns" if mps.reason else "mps")
            write(r)
            ok = ok and r["same"] == r["compared"] and not r["messages"]
    finally:
        mps.close()
        shutil.rmtree(folder, ignore_errors=True)
    if "sweep" in a.modes:
        write(sweep(a, name))
    return ok


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--brim", default=os.path.join(ROOT, "build", "bin", "brim"))
    p.add_argument("--device", default="cuda")
    p.add_argument("--experiments", type=int, default=16)
    p.add_argument("--levels", type=int, nargs="+", help="numbers of processes (default: 4 and --experiments)")
    p.add_argument("--percents", type=float, nargs="+", default=[0],
                   help="shares of the multiprocessors that a client of MPS may use; 0: all. The last is that of `bits`")
    p.add_argument("--names", nargs="+", choices=sorted(EXPERIMENTS), default=["mlp", "ars"])
    p.add_argument("--modes", nargs="*", choices=["bits", "sweep"], default=["bits"], help="besides the windows")
    p.add_argument("--window", type=float, default=20)
    p.add_argument("--warmup", type=float, default=5)
    p.add_argument("--repeats", type=int, default=3, help="windows of one alone")
    p.add_argument("--threads", type=int, default=1, help="CPU threads of each training")
    p.add_argument("--bit-steps", type=int, default=500)
    p.add_argument("--sweep-seconds", type=float, default=240)
    p.add_argument("--start-limit", type=float, default=120, help="seconds until all make steps")
    p.add_argument("--mps-program", default="nvidia-cuda-mps-control")
    p.add_argument("--output", help="append lines to this file too")
    p.add_argument("--small", action="store_true", help="tiny experiments and windows: tries the script")
    a = p.parse_args()
    a.brim = os.path.abspath(a.brim)
    if a.small:
        a.experiments, a.window, a.warmup, a.repeats, a.bit_steps, a.sweep_seconds = 2, 0.5, 0.1, 1, 3, 12
        if "BRIM_TEST_FULL" not in os.environ:  # the seed of `make test` selects one
            a.names = [a.names[int(os.environ.get("BRIM_TEST_SEED", "1")) % len(a.names)]]
    a.levels = a.levels or sorted({min(4, a.experiments), a.experiments})
    return a


def main():
    a, ok = arguments(), True

    def write(row):
        line = json.dumps(dict(row, device=a.device, window_s=a.window, warmup_s=a.warmup, small=a.small))
        print(line, flush=True)
        if a.output:
            with open(a.output, "a", encoding="utf-8") as f:
                f.write(line + "\n")

    for name in a.names:
        ok = measure(a, name, write) and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
