#!/usr/bin/env python3
"""bench_mappo and compare/mappo.py on a few environments: that what they count is what they ran. No speed is compared.

  test_bench_mappo.py BENCH_MAPPO SOURCE_FOLDER"""
import json, os, subprocess, sys, tempfile

PEER = """import json, sys
both = "--both" in sys.argv
cases = ["uav_rollout", "uav_mappo"] if both else ["uav_rollout" if "--rollout-only" in sys.argv else "uav_mappo"]
for case in cases:
    print(json.dumps(dict(peer="jax", case=case, agent_steps_s=%d if case == "uav_mappo" else 500.0)))
"""
ENVS, AGENTS, STEPS, EPOCHS, MINIBATCHES, HIDDEN = 6, 10, 8, 3, 4, 16


def check(what, true):
    if not true:
        sys.exit("failed: " + what)


def bench(program, config, *more):
    argv = [program, config, "env=uav(rules=peer, episode_steps=4)", "model=actor_critic(depth=2, hidden=%d)" % HIDDEN,
            "training.precision=fp32", "mappo.num_envs=%d" % ENVS, "mappo.rollout_steps=%d" % STEPS,
            "mappo.update_epochs=%d" % EPOCHS, "mappo.minibatches=%d" % MINIBATCHES, "--device", "cpu", "--threads", "2",
            "--windows", "3", "--launches", "2", "--no-ceilings", "--json", *more]
    r = subprocess.run(argv, capture_output=True, text=True)
    check("bench_mappo: " + r.stderr, r.returncode == 0)
    return {l["work"]: l for l in map(json.loads, r.stdout.splitlines())}


def test_program(program, config):
    lines = bench(program, config)
    check("three lines", list(lines) == ["collect", "rollout", "iteration"])
    for work, l in lines.items():
        steps = ENVS * AGENTS * STEPS
        check(work + " counts agent-steps", abs(l["agent_steps_per_s"] * l["seconds"] / steps - 1) < 1e-9)
        check(work + " orders its times", 0 < l["lowest_s"] <= l["seconds"] <= l["highest_s"])
        check(work + " acts in all rows", l["bad_rows"] == 0)
        # all T steps of the last launch: each environment ends an episode every 4 steps
        check(work + " ends %d episodes" % l["episodes"], l["episodes"] == ENVS * STEPS // 4)
        check(work + " knows no ceilings", l["ceiling_s"] is None and l["share"] is None)
    # products of the actor; inputs are padded to 32. Biases and tanh are a few percent more.
    products = lambda inputs, outputs: 2 * HIDDEN * (inputs + HIDDEN + outputs)
    actor = ENVS * AGENTS * STEPS * products(32, 5)
    critic = ENVS * (STEPS + 1) * products(40, 1)
    flops = {w: l["flops"] for w, l in lines.items()}
    check("FLOPs of the actor", actor <= flops["collect"] < 1.3 * actor)
    check("FLOPs of the critic", critic <= flops["rollout"] - flops["collect"] < 1.6 * critic)
    # a backward pass is twice a forward pass, less the gradient of the inputs
    updates = EPOCHS * (3 * actor - 2 * HIDDEN * 32 * ENVS * AGENTS * STEPS)
    check("FLOPs of the updates", updates < flops["iteration"] - flops["rollout"] < 1.7 * updates)
    check("bytes grow", lines["collect"]["bytes"] < lines["rollout"]["bytes"] < lines["iteration"]["bytes"])
    check("one line", list(bench(program, config, "--work", "rollout")) == ["rollout"])


def test_script(program, root):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.jsonl")

        def run(rate, *more):
            with open(os.path.join(folder, "jax_uav.py"), "w") as f:
                f.write(PEER % rate)
            return subprocess.run([sys.executable, os.path.join(root, "benchmarks", "compare", "mappo.py"), "--build",
                                   os.path.dirname(os.path.dirname(program)), "--device", "cpu", "--small", "--peers", folder,
                                   "--peer", "jax", "--output", out, *more], capture_output=True, text=True)

        r = run(1000, "--what", "training", "rollout", "learning")
        check("mappo.py: " + r.stdout + r.stderr, r.returncode == 0)
        with open(out) as f:
            lines = {(l["who"], l["what"]): l for l in map(json.loads, f)}
        check("who and what", set(lines) >= {("brim", "training"), ("brim", "rollout"), ("jax", "training"), ("jax", "rollout"),
                                             ("ratio", "training"), ("ratio", "rollout"), ("brim", "learning")})
        for what, peer in (("training", 1000), ("rollout", 500)):
            ours = lines["brim", what]["figures"]["agent_steps_per_s"]["median"]
            ratio = lines["ratio", what]["figures"]
            check("the ratio of " + what, ratio["best"] == "jax" and abs(ratio["ratio"] * peer / ours - 1) < 1e-9)
        check("the peer's hash", "sha256" in lines["jax", "training"]["source"])
        check("no paths of this machine", folder not in json.dumps(list(lines.values())))
        # the failure of a peer is recorded, and brim's own figures stay
        r = run(0, "--what", "training")
        with open(out) as f:
            lines = {(l["who"], l["what"]): l for l in map(json.loads, f)}
        check("exit status of a failure", r.returncode == 1)
        check("a failed peer", "failure" in lines["jax", "training"] and "figures" in lines["brim", "training"])


if __name__ == "__main__":
    test_program(sys.argv[1], os.path.join(sys.argv[2], "configs", "uav.yaml"))
    test_script(os.path.abspath(sys.argv[1]), sys.argv[2])
