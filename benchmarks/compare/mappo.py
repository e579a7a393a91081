#!/usr/bin/env python3
"""MAPPO on ten UAVs: how fast it trains and collects beside JAX and PyTorch, how near the machine's ceilings, what it learns.

  benchmarks/compare/mappo.py --peers DIR --what training rollout --output benchmarks/results/mappo-h200.jsonl
  benchmarks/compare/mappo.py --what wide learning curves --output benchmarks/results/mappo-learn-h200.jsonl
  benchmarks/compare/mappo.py --device cpu --threads 2 --what learning cartpole --output benchmarks/results/NAME.jsonl
  benchmarks/compare/mappo.py --device cpu --small          tries the script itself, in a minute

training, rollout: uav(rules=peer), 16,384 environments, T 64, 5 epochs, 4 minibatches, networks of 128-128 in bf16,
in turns: each round runs every program once, the first to run changing. The figure is the median over rounds, in
agent-steps/s. brim's training is `brim train` without evaluations, its epochs but the first; its rollout is
bench_mappo's, with the critic's values of all states, as the peers' rollouts have them. --peers names a folder with
jax_uav.py, torch_uav_fast.py and torch_uav.py, which are not part of this repository; the record has their hashes.
Each takes --envs, --T, --iters and --rollout-only and prints JSON lines with case and agent_steps_s.
wide: uav() with its default view and networks of 256-256, with the share of what the machine's ceilings allow.
learning: configs/uav.yaml for five seeds, the best policy of each evaluated by `brim eval` in held-out episodes, beside
greedy and random. curves: returns of every evaluation with fused kernels and without, five seeds each, of the default
view (fused updates) and of rules=peer (fused rollouts too); the means of both have to agree within the seeds' noise.
cartpole: seconds until 500 of 500 in all evaluation episodes.
Writes a line per program and case, with the limits it has to keep. Exit status 1 when one is missed or a command fails."""
import argparse, hashlib, json, os, shutil, statistics, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import common
from quadruped import Failed, call, events, least, most, plain

ROOT = os.path.dirname(os.path.dirname(common.HERE))
AGENTS = 10
# file, and whether it takes --both (a line of rollouts, then one of training), --epochs and --minibatches
PEERS = {"jax": ("jax_uav.py", True), "torch-fast": ("torch_uav_fast.py", True), "torch": ("torch_uav.py", False)}
MODEL = "model=actor_critic(depth=2, hidden=%d, activation=tanh)"
SIZES = dict(envs=16384, steps=64, epochs=5, minibatches=4, hidden=128)
WIDE = (1024, 4096, 16384)
LEAST = dict(training=2.5, rollout=1.5)  # share of the best peer's rate, on a GPU
WIDE_LEAST = 40e6  # agent-steps/s of an iteration, on a GPU
CURVES = {"uav()": [], "uav(rules=peer)": ["env=uav(rules=peer)"]}
NOISE = 3.5  # allowed distance between the means of two groups of seeds, in standard errors
LEARN_S = dict(cuda=180, cpu=600)  # seconds a training may take
CARTPOLE_S = 10
SMALL = dict(envs=16, steps=8, epochs=2, minibatches=4, hidden=16)
SMALL_LEARNS = ["mappo.num_envs=4", "mappo.rollout_steps=20", "mappo.minibatches=4", "mappo.iterations=2",
                "mappo.eval_interval=1", "mappo.eval_episodes=4"]
SMI = ["name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "power.limit", "temperature.gpu"]


def smi():
    """nvidia-smi's figures of the first GPU now; {} without one."""
    try:
        r = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(SMI), "--format=csv,noheader,nounits"],
                           capture_output=True, text=True)
    except OSError:
        return {}
    fields = r.stdout.splitlines()[0].split(", ") if r.returncode == 0 and r.stdout.strip() else []
    return dict(zip(SMI, (f.strip() for f in fields)))


def clocks(now):
    """MHz, W and degrees of a reading."""
    return {k: now[k] for k in SMI[2:] if k in now}


def spread(values):
    if not values:
        return dict(median=None, lowest=None, highest=None, rounds=0)
    return dict(median=statistics.median(values), lowest=min(values), highest=max(values), rounds=len(values))


class Bench:
    def __init__(self, a):
        self.a, self.lines, self.started = a, [], time.monotonic()
        self.sizes = dict(SMALL if a.small else SIZES)
        self.folder = tempfile.mkdtemp(prefix="mappo-")
        version = call([self.bin("brim"), "--version"], a.limit)[0].strip()
        self.where = dict(device=a.device, version=version, when=time.strftime("%Y-%m-%d", time.gmtime()))
        if a.device == "cuda":
            now = smi()
            self.where.update(gpu=now.get("name"), driver=now.get("driver_version"))
        else:
            self.where.update(cpu=common.cpu_name(), threads=a.threads)
        # compiled programs of the peers are kept from round to round, and with --cache from run to run
        cache = os.path.abspath(a.cache) if a.cache else self.folder
        self.env = dict(os.environ, JAX_COMPILATION_CACHE_DIR=os.path.join(cache, "jax"),
                        TORCHINDUCTOR_CACHE_DIR=os.path.join(cache, "inductor"))

    def bin(self, name):
        return os.path.join(self.a.build, "bin", name)

    def on(self):
        return ["--device", self.a.device] + (["--threads", str(self.a.threads)] if self.a.device == "cpu" else [])

    def config(self, name):
        return os.path.join(ROOT, "configs", name + ".yaml")

    def note(self, who, what, figures, limits=(), **more):
        line = dict(benchmark="mappo", who=who, what=what, **self.where, figures=figures, limits=list(limits),
                    met=all(l["met"] for l in limits), **more)
        self.lines.append(line)
        missed = "".join("  MISSED %s" % json.dumps(l) for l in limits if not l["met"])
        print("%-12s %-22s %s%s" % (who, what, json.dumps(figures)[:160], missed), flush=True)

    def fail(self, who, what, why):
        self.lines.append(dict(benchmark="mappo", who=who, what=what, **self.where, failure=str(why), met=False))
        print("%-12s %-22s FAILED %s" % (who, what, why), flush=True)

    # ------------------------------ brim and its peers, in turns ------------------------------

    def brim_options(self, env, hidden, envs):
        s = self.sizes
        return [self.config("uav"), "env=" + env, MODEL % hidden, "optimizer=adam(lr=3e-4)", "training.precision=bf16",
                "mappo.num_envs=%d" % envs, "mappo.rollout_steps=%d" % s["steps"], "mappo.update_epochs=%d" % s["epochs"],
                "mappo.minibatches=%d" % s["minibatches"]]

    def run_brim(self, what):
        """Rates by case of one round, and the command of each."""
        s, peer = self.sizes, "uav(rules=peer)"
        if what == "training":
            epochs, each = (3, 1) if self.a.small else (5, 10)
            out = os.path.join(self.folder, "training")
            argv = [self.bin("brim"), "train", *self.brim_options(peer, s["hidden"], s["envs"]),
                    "mappo.iterations=%d" % (epochs * each), "mappo.eval_interval=%d" % each, "mappo.eval_episodes=0",
                    *self.on(), "--json", "--output-dir", out]
            ends = [e for e in events(call(argv, self.a.limit)[0]) if e.get("event") == "epoch"]
            with open(os.path.join(out, "log.jsonl")) as f:
                walls = [e["wall_s"] for e in map(json.loads, f) if e.get("event") == "epoch"]
            shutil.rmtree(out)
            rate = statistics.median(e["samples_per_s"] for e in ends[1:])
            steps = (len(walls) - 1) * each * s["envs"] * s["steps"] * AGENTS
            return {"training": dict(rate=rate, with_logs=steps / (walls[-1] - walls[0]))}, argv
        argv = [self.bin("bench_mappo"), *self.brim_options(peer, s["hidden"], s["envs"]), *self.on(), "--work", "collect",
                "rollout", "--json"] + (["--windows", "2", "--launches", "2", "--no-ceilings"] if self.a.small else [])
        found = {}
        for e in events(call(argv, self.a.limit)[0]):
            keep = ("seconds", "flops", "bytes", "ceiling_flops_per_s", "ceiling_bytes_per_s", "ceiling_s", "share", "library",
                    "rollout_bytes", "bad_rows")
            found[e["work"]] = dict(rate=e["agent_steps_per_s"], **{k: e[k] for k in keep})
        return found, argv

    def peer_argv(self, who, whats):
        file, both = PEERS[who]
        s = self.sizes
        argv = [self.a.python, os.path.join(self.a.peers, file), "--envs", str(s["envs"]), "--T", str(s["steps"]),
                "--iters", "2" if self.a.small else "10"]
        if both:
            argv += ["--epochs", str(s["epochs"]), "--minibatches", str(s["minibatches"])]
        if whats == ["rollout"]:
            argv.append("--rollout-only")
        elif len(whats) == 2:
            argv.append("--both")
        if self.a.device == "cpu":
            argv += ["--allow-cpu"] if who == "jax" else ["--device", "cpu"]
        return argv

    def run_peer(self, who, whats):
        argv, timeout = self.peer_argv(who, whats), self.a.peer_limit
        try:
            r = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=self.env)
        except subprocess.TimeoutExpired:
            raise Failed("more than %g s" % timeout)
        lines = {dict(uav_mappo="training").get(l.get("case"), "rollout"): l for l in events(r.stdout) if l.get("agent_steps_s")}
        if sorted(lines) != sorted(whats):
            errors = [l["error"] for l in events(r.stdout) if l.get("error")] + r.stderr.strip().splitlines()
            raise Failed((errors or ["no word"])[-1][:300])
        keep = ("compile_s", "level", "mode", "shuffle", "dot_out", "note", "torch", "jax", "device", "reward_last")
        return {w: dict(rate=l["agent_steps_s"], **{k: l[k] for k in keep if k in l}) for w, l in lines.items()}, argv

    def run_one(self, who, whats, got):
        before = smi() if self.a.device == "cuda" else {}
        begun = time.monotonic()
        try:
            found, argv = self.run_brim(whats[0]) if who == "brim" else self.run_peer(who, whats)
        except (Failed, OSError) as e:
            for what in whats:
                got.setdefault((who, what), []).append(dict(failure=str(e)))
            print("%-12s %-22s FAILED %s" % (who, " ".join(whats), e), flush=True)
            return
        for case, f in found.items():
            f.update(command=plain(argv, self.folder).replace(os.path.abspath(self.a.peers or "-"), "PEERS"),
                     clocks=[clocks(before), clocks(smi())] if before else [], wall_s=round(time.monotonic() - begun, 1))
            got.setdefault((who, case), []).append(f)
            print("%-12s %-22s %8.2f M agent-steps/s  %5.1f s" % (who, case, f["rate"] * 1e-6, f["wall_s"]), flush=True)

    def source(self, who):
        """Identifies a peer program by its content, because it is not part of this repository."""
        if who == "brim":
            return "this repository"
        path = os.path.join(self.a.peers, PEERS[who][0])
        with open(path, "rb") as f:
            return "%s, sha256 %s, not in this repository" % (PEERS[who][0], hashlib.sha256(f.read()).hexdigest()[:16])

    def in_turns(self, whats):
        here = [p for p in self.a.peer if self.a.peers and os.path.exists(os.path.join(self.a.peers, PEERS[p][0]))]
        who = ["brim"] + [p for p in here if PEERS[p][1] or self.a.device == "cuda"]  # the plain one needs a GPU
        got = {}
        for i in range(1 if self.a.small else self.a.rounds):
            if time.monotonic() - self.started > self.a.total:
                print("no time for round %d" % (i + 1))
                break
            turn = who[i % len(who):] + who[:i % len(who)]
            for w in turn:
                together = [whats] if w != "brim" and PEERS[w][1] else [[what] for what in whats]
                for group in together:
                    self.run_one(w, group, got)
        for (w, what), runs in got.items():
            good = [r for r in runs if "rate" in r]
            if not good:
                self.fail(w, what, runs[-1]["failure"])
                continue
            rates = spread([r["rate"] for r in good])
            more = {k: v for k, v in good[-1].items() if k not in ("rate", "clocks", "command", "wall_s")}
            if w == "brim" and "with_logs" in more:
                more["with_logs"] = statistics.median(r["with_logs"] for r in good)
            s = self.sizes
            rates["ms"] = s["envs"] * s["steps"] * AGENTS / rates["median"] * 1e3
            self.note(w, what, dict(agent_steps_per_s=rates, **more), settings=s, source=self.source(w),
                      command=good[-1]["command"], rates=[r.get("rate") for r in runs],
                      clocks=[r["clocks"] for r in good], failures=[r["failure"] for r in runs if "failure" in r])
        for what in whats:
            self.ratio(what)

    def ratio(self, what):
        """brim's rate over the fastest peer's."""
        found = {l["who"]: l["figures"]["agent_steps_per_s"]["median"] for l in self.lines
                 if l["what"] == what and "figures" in l and l["who"] != "ratio"}
        others = {w: r for w, r in found.items() if w != "brim"}
        if "brim" not in found or not others:
            return
        best = max(others, key=others.get)
        f = dict(best=best, ratio=found["brim"] / others[best], of_each={w: found["brim"] / r for w, r in others.items()})
        self.note("ratio", what, f, [] if self.a.small else [least(f, "ratio", self.a.least or LEAST[what])])

    # ------------------------------ ceilings ------------------------------

    def wide(self):
        for envs in (8,) if self.a.small else WIDE:
            what = "wide %d" % envs
            argv = [self.bin("bench_mappo"), *self.brim_options("uav()", 16 if self.a.small else 256, envs), *self.on(),
                    "--json", "--windows", "2" if self.a.small else "5", "--launches", "1" if self.a.small else "10"]
            before = smi() if self.a.device == "cuda" else {}
            try:
                found = events(call(argv, self.a.limit)[0])
            except Failed as e:
                self.fail("brim", what, e)
                continue
            for f in found:
                work, _ = f.pop("work"), f.pop("benchmark")
                f["flops_per_agent_step"] = f["flops"] / (f["envs"] * f["steps"] * f["agents"])
                f["bytes_per_agent_step"] = f["bytes"] / (f["envs"] * f["steps"] * f["agents"])
                f["tflops_per_s"] = f["flops"] / f["seconds"] * 1e-12
                most_flops = f["ceiling_flops_per_s"]
                f["share_of_flops"] = f["flops"] / f["seconds"] / most_flops if most_flops else None
                limits = []
                if work == "iteration" and envs == WIDE[-1] and self.a.device == "cuda" and not self.a.small:
                    limits.append(least(f, "agent_steps_per_s", WIDE_LEAST))
                self.note("brim", "%s %s" % (what, work), f, limits, command=plain(argv, self.folder),
                          clocks=[clocks(before), clocks(smi())] if before else [])

    # ------------------------------ learning ------------------------------

    def train(self, name, config, *more):
        """Events, each with the second at which it arrived, counted from the start of the process; the folder; seconds
        in all."""
        out = os.path.join(self.folder, name)
        argv = [self.bin("brim"), "train", config, *(SMALL_LEARNS if self.a.small else []), *more, *self.on(), "--json",
                "--output-dir", out]
        begun = time.time()
        text, wall = call(argv, self.a.limit)
        return argv, [dict(e, at=e["t"] - begun) for e in events(text)], out, wall

    def evaluate(self, out):
        argv = [self.bin("brim"), "eval", os.path.join(out, "best.safetensors"), "--episodes", "4" if self.a.small else "100",
                *self.on(), "--json"]
        return events(call(argv, self.a.limit)[0])[-1]

    def learning(self):
        means = []
        for seed in range(1 if self.a.small else self.a.seeds):
            what = "learning seed %d" % seed
            try:
                argv, told, out, wall = self.train("uav-%d" % seed, self.config("uav"), "seed=%d" % seed)
                r = self.evaluate(out)
            except Failed as e:
                self.fail("brim", what, e)
                continue
            rates = [e["samples_per_s"] for e in told if e.get("event") == "epoch"]
            f = dict(mean_coverage=r["mean_coverage"], greedy=r["greedy_mean_coverage"], random=r["baseline_mean_coverage"],
                     coverage=r["coverage"], collisions=r["collisions"], overlap=r["overlap"], episodes=r["episodes"],
                     wall_s=wall, agent_steps_per_s=statistics.median(rates), load=os.getloadavg()[0])
            f.update(of_greedy=f["mean_coverage"] / f["greedy"], of_random=f["mean_coverage"] / f["random"])
            limits = [least(f, "of_random", 1.5), most(f, "wall_s", LEARN_S[self.a.device])]
            if self.a.device == "cuda":
                limits.append(least(f, "of_greedy", 1))
            means.append(f)
            self.note("brim", what, f, [] if self.a.small else limits, command=plain(argv, self.folder))
            shutil.rmtree(out)
        if means:
            keys = ("mean_coverage", "greedy", "random", "of_greedy", "of_random", "wall_s")
            self.note("brim", "learning", {k: spread([f[k] for f in means]) for k in keys})

    def curve(self, env, fused, seed):
        """Returns of the evaluations of a training, and whether it was fused."""
        argv, told, out, _ = self.train("curve", self.config("uav"), *CURVES[env], "training.precision=bf16",
                                        "mappo.fused=%s" % fused, "seed=%d" % seed)
        shutil.rmtree(out)
        start = [e.get("fused") for e in told if e.get("fused")]
        return [e["eval_return"] for e in told if e.get("event") == "epoch"], start[0] if start else None, argv

    def curves(self):
        for env in CURVES:
            rows, is_fused, commands = {}, {}, {}
            try:
                for fused in ("auto", "off"):
                    for seed in range(2 if self.a.small else self.a.seeds):
                        returns, is_fused[fused], argv = self.curve(env, fused, seed)
                        rows.setdefault(fused, []).append(returns)
                        commands[fused] = plain(argv, self.folder)
            except Failed as e:
                self.fail("brim", "curves " + env, e)
                continue
            apart = []
            for a, b in zip(zip(*rows["auto"]), zip(*rows["off"])):
                error = (statistics.variance(a) / len(a) + statistics.variance(b) / len(b)) ** 0.5
                apart.append(abs(statistics.mean(a) - statistics.mean(b)) / error if error > 0 else 0.0)
            f = dict(returns=rows, fused=is_fused, mean_of_each={k: [statistics.mean(v) for v in zip(*r)] for k, r in rows.items()},
                     standard_errors_apart=apart, most_apart=max(apart))
            self.note("brim", "curves " + env, f, [] if self.a.small else [most(f, "most_apart", NOISE)], command=commands["auto"])

    def cartpole(self):
        for seed in range(1 if self.a.small else self.a.seeds):
            what = "cartpole seed %d" % seed
            try:
                argv, told, out, wall = self.train("cartpole-%d" % seed, self.config("cartpole-mappo"), "seed=%d" % seed)
                r = self.evaluate(out)
            except Failed as e:
                self.fail("brim", what, e)
                continue
            solved = [e for e in told if e.get("event") == "epoch" and (e.get("eval_return") or 0) >= 500]
            f = dict(seconds_to_500=solved[0]["at"] if solved else None, epoch=solved[0]["epoch"] if solved else None,
                     held_out_return=r["return"], wall_s=wall, load=os.getloadavg()[0])
            limits = [most(f, "seconds_to_500", CARTPOLE_S), least(f, "held_out_return", 500)]
            self.note("brim", what, f, [] if self.a.small else limits, command=plain(argv, self.folder))
            shutil.rmtree(out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--threads", type=int, default=2, help="of a CPU")
    p.add_argument("--what", nargs="+", default=["training", "rollout", "wide", "learning", "curves", "cartpole"],
                   choices=("training", "rollout", "wide", "learning", "curves", "cartpole"))
    p.add_argument("--peers", default=None, help="folder of the programs brim is compared with")
    p.add_argument("--peer", nargs="+", default=list(PEERS), choices=list(PEERS))
    p.add_argument("--python", default=os.environ.get("BRIM_TORCH_PYTHON", sys.executable), help="that has torch and jax")
    p.add_argument("--cache", help="folder that keeps what peers compiled for the next run")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--total", type=float, default=3600, help="seconds; no round begins later")
    p.add_argument("--limit", type=float, default=3600, help="seconds a command of brim may take")
    p.add_argument("--peer-limit", type=float, default=300, help="seconds a peer may take, compiling included")
    p.add_argument("--least", type=float, help="that brim has to reach of the best peer (default: 2.5 training, 1.5 rollout)")
    p.add_argument("--small", action="store_true")
    p.add_argument("--output")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    b = Bench(a)
    try:
        turns = [w for w in ("training", "rollout") if w in a.what]
        if turns:
            b.in_turns(turns)
        for what in ("wide", "learning", "curves", "cartpole"):
            if what in a.what:
                getattr(b, what)()
    finally:
        shutil.rmtree(b.folder, ignore_errors=True)
        if a.output:
            common.write_lines(a.output, b.lines)
    missed = ["%s %s" % (l["who"], l["what"]) for l in b.lines if not l["met"]]
    print("%d measurements, %s" % (len(b.lines), "missed: " + "; ".join(missed) if missed else "no limit missed"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
