#!/usr/bin/env python3
"""ARS on the quadruped: how fast rollouts are, what the GPU does meanwhile, what is learned, and that bits repeat.

  benchmarks/compare/quadruped.py --build build --device cuda --output benchmarks/results/quadruped-h200.jsonl
  benchmarks/compare/quadruped.py --build build --device cpu --output benchmarks/results/quadruped-CPU.jsonl
  benchmarks/compare/quadruped.py --build build --device cpu --small      tries the script itself, in a minute

cuda: bench_rollout (4,096 and 65,536 environments, MLP, RK4, walk); SM activity by `brim bench` of 1,024 x 64;
configs/quadruped-stand.yaml for five seeds and configs/quadruped-walk.yaml, the best policy of each evaluated by
`brim eval` in held-out episodes; two runs and two dir_chunks compared byte by byte.
cpu: bench_quadruped, physics steps of one core beside libmujoco's; bench_rollout; the same five seeds on
--threads threads; bytes. --walk trains walk there too (a quarter of an hour or more).
--only takes some of: rollouts activity physics stand walk bits. Writes a line per measurement, with the limits it
has to keep and whether it did. Exit status 1 when one is missed or a command fails."""
import argparse, hashlib, json, os, re, shutil, statistics, struct, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import common

ROOT = os.path.dirname(os.path.dirname(common.HERE))
# name, arguments of bench_rollout, and of its figures the least
ROLLOUTS = [
    ("4,096 linear Euler", ["--envs", "64", "--dirs", "64"], dict(steps_per_s=20e6)),
    ("65,536 linear Euler", ["--envs", "1024", "--dirs", "64"], dict(steps_per_s=100e6, iteration_share=0.9)),
    ("65,536 MLP 256 Euler", ["--envs", "1024", "--dirs", "64", "--hidden", "256"], dict(steps_per_s=30e6)),
    ("65,536 linear RK4", ["--envs", "1024", "--dirs", "64", "--rk4"], {}),
    ("65,536 linear Euler, walk", ["--envs", "1024", "--dirs", "64", "--task", "walk"], {}),
]
CPU_ROLLOUTS = [("1,024 linear Euler", ["--envs", "16", "--dirs", "64"], {}),
                ("1,024 MLP 256 Euler", ["--envs", "16", "--dirs", "64", "--hidden", "256"], {})]
LEARN_S = dict(cuda=60, cpu=600)  # seconds a training may take
SMALL = ["ars.num_envs=4", "ars.num_dirs=4", "ars.dir_chunk=4", "ars.top_dirs=2", "ars.iterations=4",
         "ars.episode_length=20", "ars.eval_interval=2", "ars.eval_episodes=4"]


class Failed(Exception):
    pass


def call(argv, limit):
    """Output and duration of a command; Failed with its last words."""
    started = time.monotonic()
    try:
        r = subprocess.run(argv, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise Failed("%s: more than %g s" % (os.path.basename(argv[0]), limit))
    except OSError as e:
        raise Failed("%s: %s" % (argv[0], e.strerror))
    if r.returncode:
        raise Failed("%s: %s" % (os.path.basename(argv[0]), (r.stderr.strip().splitlines() or ["no word"])[-1][:300]))
    return r.stdout, time.monotonic() - started


def plain(argv, folder):
    """A command as a user of another machine would type it."""
    words = [os.path.relpath(w, ROOT) if w.startswith(ROOT + os.sep + "configs") else w.replace(folder, "OUT")
             for w in argv[1:]]
    return " ".join([os.path.basename(argv[0])] + [w if re.fullmatch(r"[\w.,=/:-]+", w) else "'%s'" % w for w in words])


def events(text):
    return [json.loads(l) for l in text.splitlines() if l.startswith("{")]


def gpu_name():
    try:
        r = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
        return r.stdout.splitlines()[0].strip() if r.stdout.strip() else None
    except OSError:
        return None


def least(figures, name, limit):
    return dict(figure=name, at_least=limit, value=figures.get(name),
                met=figures.get(name) is not None and figures[name] >= limit)


def most(figures, name, limit):
    return dict(figure=name, at_most=limit, value=figures.get(name),
                met=figures.get(name) is not None and figures[name] <= limit)


class Bench:
    def __init__(self, a):
        self.a, self.lines = a, []
        self.folder = tempfile.mkdtemp(prefix="quadruped-")
        self.where = dict(device=a.device)
        if a.device == "cuda":
            self.where["gpu"] = gpu_name()
        else:
            self.where.update(cpu=common.cpu_name(), threads=a.threads)

    def bin(self, name):
        return os.path.join(self.a.build, "bin", name)

    def on(self):
        return ["--device", self.a.device] + (["--threads", str(self.a.threads)] if self.a.device == "cpu" else [])

    def config(self, task):
        return os.path.join(ROOT, "configs", "quadruped-%s.yaml" % task)

    def note(self, part, argv, figures, limits):
        line = dict(benchmark="quadruped", part=part, **self.where, command=plain(argv, self.folder), figures=figures,
                    limits=limits, met=all(l["met"] for l in limits))
        self.lines.append(line)
        missed = "".join("  MISSED %s" % json.dumps(l) for l in limits if not l["met"])
        print("%-34s %s%s" % (part, json.dumps(figures)[:150], missed), flush=True)

    def fail(self, part, why):
        self.lines.append(dict(benchmark="quadruped", part=part, **self.where, failure=str(why), met=False))
        print("%-34s FAILED %s" % (part, why), flush=True)

    # ------------------------------ speed ------------------------------

    def rollouts(self):
        for name, args, limits in ROLLOUTS if self.a.device == "cuda" else CPU_ROLLOUTS:
            argv = [self.bin("bench_rollout"), *self.on(), *args, "--json"]
            if self.a.small:
                argv += ["--steps", "10", "--repeats", "1"]
            try:
                f = events(call(argv, self.a.limit)[0])[-1]
            except Failed as e:
                self.fail("rollouts " + name, e)
                continue
            f.pop("device")
            f["iteration_share"] = f["iteration_steps_per_s"] / f["steps_per_s"]
            self.note("rollouts " + name, argv, f, [least(f, k, v) for k, v in limits.items()])

    def activity(self):
        if self.a.device != "cuda":
            return
        out = os.path.join(self.folder, "activity")
        argv = [self.bin("brim"), "bench", self.config("stand"), "--num-envs", "1024", "--num-dirs", "64",
                "--dir-chunk", "64", "--steps", "50", "--min-steps", "50", "--no-ceilings", *self.on(),
                "--output-dir", out]
        try:
            call(argv, self.a.limit)
            with open(os.path.join(out, "results.jsonl")) as f:
                r = next(r for r in map(json.loads, f) if r["kind"] == "trial" and not r["failure"])
        except (Failed, StopIteration, OSError) as e:
            return self.fail("activity 65,536 linear Euler", e or "no setting was measured")
        f = {k: r["utilisation"][k] for k in ("sm_percent", "gpu_percent", "occupancy_percent", "power_w", "clock_mhz")}
        f.update(env_steps_per_s=r["throughput"]["samples_per_s"], iteration_ms=r["total"]["median_ms"])
        self.note("activity 65,536 linear Euler", argv, f, [least(f, "sm_percent", 80)])

    def physics(self):
        """Each form's median over several runs of bench_quadruped, which itself gives medians."""
        if self.a.device != "cpu":
            return
        argv = [self.bin("bench_quadruped"), "2000" if self.a.small else str(self.a.physics_steps)]
        rates = {}
        try:
            for _ in range(1 if self.a.small else self.a.repeats):
                for line in call(argv, self.a.limit)[0].splitlines():
                    if not line.startswith(" "):
                        mode = line.strip()
                    m = re.match(r"  (\w[\w ]*?) +(\d+) steps/s", line)
                    if m:
                        rates.setdefault(mode, {}).setdefault(m[1], []).append(float(m[2]))
        except Failed as e:
            return self.fail("physics of one core", e)
        for mode, forms in rates.items():
            f = {name.replace(" ", ""): statistics.median(v) for name, v in forms.items()}
            f.update(repeats=len(next(iter(forms.values()))), load=os.getloadavg()[0])
            simd = next(k for k in f if k.startswith("simd"))
            for name in (simd, "f32", "f64"):
                f[name + "_of_mujoco"] = f[name] / f["mujoco"] if "mujoco" in f else None
            limits = [least(f, simd + "_of_mujoco", 4)] if mode.startswith("Euler") else []
            self.note("physics " + mode, argv, f, limits)

    # ------------------------------ learning ------------------------------

    def train(self, task, name, *more):
        out = os.path.join(self.folder, name)
        argv = [self.bin("brim"), "train", self.config(task), *(SMALL if self.a.small else []), *more, *self.on(),
                "--json", "--output-dir", out]
        text, wall = call(argv, self.a.limit)
        rates = [e["samples_per_s"] for e in events(text) if e.get("event") == "epoch" and e.get("samples_per_s")]
        return argv, os.path.join(out, "best.safetensors"), wall, statistics.median(rates) if rates else None

    def evaluate(self, policy, episodes):
        argv = [self.bin("brim"), "eval", policy, "--episodes", str(episodes), *self.on(), "--json"]
        r = events(call(argv, self.a.limit)[0])[-1]
        return {k: r[k] for k in ("episodes", "falls", "zero_falls", "return", "return_spread", "zero_return",
                                  "mean_length", "forward_speed", "walked")}

    def stand(self):
        for seed in range(1 if self.a.small else self.a.seeds):
            part = "stand seed %d" % seed
            try:
                argv, policy, wall, rate = self.train("stand", "stand-%d" % seed, "seed=%d" % seed)
                f = self.evaluate(policy, 20 if self.a.small else 1000)
            except Failed as e:
                self.fail(part, e)
                continue
            f.update(wall_s=wall, env_steps_per_s=rate, load=os.getloadavg()[0],
                     falls_of_zero=f["falls"] / f["zero_falls"] if f["zero_falls"] else None)
            limits = [most(f, "falls_of_zero", 0.5), most(f, "wall_s", LEARN_S[self.a.device])]
            self.note(part, argv, f, [] if self.a.small else limits)

    def walk(self):
        if self.a.device == "cpu" and not self.a.walk:
            return
        try:
            argv, policy, wall, rate = self.train("walk", "walk")
            f = self.evaluate(policy, 10 if self.a.small else 100)
        except Failed as e:
            return self.fail("walk", e)
        f.update(wall_s=wall, env_steps_per_s=rate)
        self.note("walk", argv, f, [] if self.a.small else [least(f, "walked", 90)])

    # ------------------------------ bits ------------------------------

    def bits(self):
        """The bytes of the tensors alone, because the metadata beside them name the run and its options."""
        found = {}
        all_of_them, some = (4, 3) if self.a.small else (64, 24)
        for name, chunk in (("one", all_of_them), ("two", all_of_them), ("chunk %d" % some, some), ("chunk 1", 1)):
            more = ["ars.iterations=%d" % (2 if self.a.small else 20), "ars.dir_chunk=%d" % chunk]
            try:
                argv, policy, _, _ = self.train("stand", name.replace(" ", "-"), *more)
            except Failed as e:
                return self.fail("bits", e)
            with open(policy, "rb") as file:
                n = struct.unpack("<Q", file.read(8))[0]
                file.seek(8 + n)
                found[name] = hashlib.sha256(file.read()).hexdigest()[:16]
        same = len(set(found.values())) == 1
        self.note("bits", argv, dict(sha256=found, different=len(set(found.values())) - 1),
                  [dict(figure="different", at_most=0, value=len(set(found.values())) - 1, met=same)])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--repeats", type=int, default=5, help="of bench_quadruped")
    p.add_argument("--physics-steps", type=int, default=40000, help="of a run of it: fewer where others use the machine")
    p.add_argument("--limit", type=float, default=3600, help="seconds a command may take")
    p.add_argument("--only", nargs="+", default=["rollouts", "activity", "physics", "stand", "walk", "bits"])
    p.add_argument("--walk", action="store_true")
    p.add_argument("--small", action="store_true")
    p.add_argument("--output")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    b = Bench(a)
    try:
        for part in a.only:
            getattr(b, part)()
    finally:
        shutil.rmtree(b.folder, ignore_errors=True)
    if a.output:
        common.write_lines(a.output, b.lines)
    missed = [l["part"] for l in b.lines if not l["met"]]
    print("%d measurements, %s" % (len(b.lines), "missed: " + "; ".join(missed) if missed else "no limit missed"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
