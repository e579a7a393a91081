#!/usr/bin/env python3
"""The slow start of ten UAVs and its remedies, by `brim bench` alone: phases, before and after, predicted and real gains.

  benchmarks/compare/uav_story.py --output benchmarks/results/uav-story-h200.jsonl
  benchmarks/compare/uav_story.py --device cpu --small          tries the script itself, in seconds

Benches configs/uav-before.yaml and configs/uav-after.yaml, each as it is and with the environments on the GPU, with as
many environments and with 256, and lets `brim compare` show the two configs side by side. What environments on the GPU
gain is predicted from the record of the config as it is: the phases that move take what a probe of a few steps took on
the GPU (phases.*.on_gpu_ms), the rest stays; for more environments it is the prediction of the finding env_on_cpu. The
real gain is the measured one of the same sweep. Predictions have to be within 25 %.
Writes a line per mode and per prediction. Exit status 1 when a prediction misses or a command fails."""
import argparse, json, os, shutil, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MANY = 256
MOST_OFF = 0.25
CODES = ["env_on_cpu", "small_minibatch", "step_transfers", "sequential_episodes"]  # in the order of the report
PHASES = [("env", "environment simulation"), ("act", "action selection"), ("h2d", "transfers"),
          ("update", "network update"), ("other", "other")]
SMALL = ["env=uav(size=12, num_uavs=3, num_obstacles=5, max_steps=20, crop=5)", "model=actor_critic(hidden=16)",
         "mappo.episodes_per_batch=4", "mappo.update_epochs=2"]


class Failed(Exception):
    pass


def call(command, seconds):
    r = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if r.returncode:
        raise Failed("exit %d: %s\n%s" % (r.returncode, " ".join(command), r.stderr.strip()[-2000:]))
    return r.stdout


def sweep(a, folder, name, own, batch):
    """Records of a config's own setting, of one with environments on the GPU, and of one with more environments."""
    out = os.path.join(folder, name)
    command = [a.brim, "bench", os.path.join(ROOT, "configs", "uav-%s.yaml" % name), "--num-envs", str(own)]
    command += [] if a.small else [str(MANY)]
    command += ["--batch-sizes", str(batch), "--repeats", str(a.repeats), "--no-ceilings", "--output-dir", out]
    command += ["mappo.fused=off"]  # compares places of environments, on one path of networks
    command += ["--device", a.device] if a.device else []
    command += SMALL + ["--steps", "2"] if a.small else []
    print(call(command, a.limit))
    with open(os.path.join(out, "results.jsonl")) as f:
        records = [json.loads(line) for line in f]
    return out, [r for r in records if r["kind"] == "trial" and not r["failure"]]


def at(records, envs, where):
    found = [r for r in records
             if r["what"]["setting"]["num_envs"] == envs and r["what"]["setting"]["collect_on"] == where]
    return found[-1] if found else None


def rate(r, unit):
    return next((x["per_s"] for x in r["rates"] if x["unit"] == unit), None)


def line_of(mode, r):
    """The columns of a record that the tables show."""
    total, mean = r["total"]["median_ms"], r["total"]["mean_ms"]
    phases = {}
    for key, _ in PHASES:
        p = r["phases"].get(key)
        if not p:
            continue
        phases[key] = dict(ms=p["mean_ms"] / mean * total, share=p["mean_ms"] / mean)
        if p.get("gpu_busy_ms") is not None and p["mean_ms"] > 0:
            phases[key]["gpu_busy"] = min(1, p["gpu_busy_ms"] / p["mean_ms"])
        if p.get("on_gpu_ms") is not None:
            phases[key]["on_gpu_ms"] = p["on_gpu_ms"]
    episodes, use = rate(r, "full-length episodes/s"), r["utilisation"]
    return dict(mode=mode, setting=r["what"]["setting"], iteration_ms=total, stable=r["trial"]["stable"], phases=phases,
                gpu_percent=use["gpu_percent"], sm_percent=use["sm_percent"], episode_s=1 / episodes,
                episodes_10k_s=1e4 / episodes, memory_bytes=r["memory"]["real"] or r["memory"]["planned_device"] + r["memory"]["planned_host"],
                agent_step_us=1e6 / r["throughput"]["samples_per_s"],
                agent_steps_per_s=rate(r, "agent-steps/s collected"),
                agent_samples_trained_per_s=rate(r, "agent-samples/s trained"),
                environment_steps_per_s=rate(r, "environment steps/s"),
                findings=[{k: f.get(k) for k in ("code", "cost_ms", "predicted_ms")} for f in r["findings"]],
                device=r["where"]["device"], cpu=r["where"]["cpu"], cores=r["where"]["cores"],
                version=r["brim"]["version"], when=r["when"])


def predicted_ms(r):
    """The step with equally many environments on the GPU: phases that move take the probe's times."""
    ms = r["total"]["median_ms"]
    for p in r["phases"].values():
        ms += p["on_gpu_ms"] - p["median_ms"] if p.get("on_gpu_ms") is not None else 0
    return ms


def prediction(of, envs, r, factor, real):
    samples = [x["throughput"]["samples_per_s"] for x in (r, real)]
    measured = samples[1] / samples[0]
    off = factor / measured - 1
    return dict(mode="prediction", of=of, num_envs=envs, predicted=factor, measured=measured, off=off, most_off=MOST_OFF,
                kept=abs(off) <= MOST_OFF)


def predictions(of, own, records):
    r, same, many = at(records, own, "cpu"), at(records, own, "gpu"), at(records, MANY, "gpu")
    total, lines = r["total"]["median_ms"], []
    if same and r["phases"].get("env", {}).get("on_gpu_ms") is not None:
        lines.append(prediction(of, own, r, total / predicted_ms(r), same))
    found = [f for f in r["findings"] if f["code"] == "env_on_cpu" and f.get("predicted_ms") is not None]
    if many and found:
        lines.append(prediction(of, MANY, r, total / (total - found[0]["predicted_ms"]), many))
    return lines


def show(lines):
    modes = [x for x in lines if x["mode"] != "prediction"]
    print("%-26s" % "ms, share, GPU busy" + "".join("%24s" % m["mode"] for m in modes))
    for key, label in PHASES:
        cells = ""
        for m in modes:
            p = m["phases"].get(key)
            busy = "%.0f %%" % (100 * p["gpu_busy"]) if p and "gpu_busy" in p else "-"
            cells += "%24s" % ("%.2f  %.0f %%  %s" % (p["ms"], 100 * p["share"], busy) if p else "-")
        print("%-26s" % label + cells)
    for label, key, form in [("iteration, ms", "iteration_ms", "%.1f"), ("GPU busy, %", "gpu_percent", "%.0f"),
                             ("SMs with work, %", "sm_percent", "%.1f"), ("time per episode, s", "episode_s", "%.5f"),
                             ("10,000 episodes, s", "episodes_10k_s", "%.1f"), ("memory, MB", "memory_bytes", "%.0f"),
                             ("time per agent-step, us", "agent_step_us", "%.2f"),
                             ("agent-steps/s", "agent_steps_per_s", "%.0f"),
                             ("agent-samples/s trained", "agent_samples_trained_per_s", "%.0f"),
                             ("environment steps/s", "environment_steps_per_s", "%.0f")]:
        values = [m[key] / 1e6 if key == "memory_bytes" and m[key] else m[key] for m in modes]
        print("%-26s" % label + "".join("%24s" % ("-" if v is None else form % v) for v in values))
    for p in lines:
        if p["mode"] == "prediction":
            print("environments of %s to the GPU, num_envs %d: predicted %.2f times as fast, measured %.2f, off by %+.0f %%%s"
                  % (p["of"], p["num_envs"], p["predicted"], p["measured"], 100 * p["off"], "" if p["kept"] else "  MISSED"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default=os.path.join(ROOT, "build", "bin", "brim"))
    p.add_argument("--device", help="cuda or cpu (default: the config's)")
    p.add_argument("--repeats", type=int, default=3, help="of brim bench")
    p.add_argument("--limit", type=int, default=600, help="seconds a command may take")
    p.add_argument("--small", action="store_true", help="a tiny environment, to try the script")
    p.add_argument("--output", help="file of JSON lines")
    a = p.parse_args()
    a.brim = os.path.abspath(a.brim)
    folder, lines, started = tempfile.mkdtemp(prefix="uav-story-"), [], time.monotonic()
    try:
        sides = []
        for name, own, batch in [("before", 1, 512), ("after", 16, 1024)]:
            out, records = sweep(a, folder, name, own, batch)
            sides.append(out)
            if not at(records, own, "cpu"):
                raise Failed("no record of the config's own setting in %s" % out)
            for mode, envs, where in [(name, own, "cpu"), (name + "-gpu", own, "gpu"),
                                      ("%s-gpu-%d" % (name, MANY), MANY, "gpu")]:
                if at(records, envs, where):
                    lines.append(line_of(mode, at(records, envs, where)))
            codes = [f["code"] for f in at(records, own, "cpu")["findings"] if f["code"] in CODES]
            if codes != sorted(codes, key=CODES.index):
                raise Failed("findings of %s in the order %s" % (name, codes))
            lines += predictions(name, own, records)
        print(call([a.brim, "compare"] + sides, a.limit))
    except (Failed, OSError, subprocess.TimeoutExpired) as e:
        print("uav_story: %s" % e, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(lines)
    print("%.0f s" % (time.monotonic() - started))
    if a.output:
        with open(a.output, "w") as f:
            f.writelines(json.dumps(x) + "\n" for x in lines)
    return 0 if all(x.get("kept", True) for x in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
