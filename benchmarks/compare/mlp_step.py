#!/usr/bin/env python3
"""One training step of the MLP 784-512x4-10 at batch 512, brim beside PyTorch, in one run.

  benchmarks/compare/mlp_step.py --brim build/bin/brim --make-idx build/bin/brim-make-idx \
      --threads 2 --rounds 5 --output benchmarks/results/NAME.jsonl

Rounds alternate (brim, PyTorch, brim, ...), each a fresh process; the figure is the median of the
rounds' medians. brim's step includes reading the batch; PyTorch's data lies ready in memory.
Needs a python3 with torch (Debian: python3-torch, libopenblas0-pthread); --python names it.
"""
import argparse, json, os, platform, statistics, subprocess, sys, tempfile, time

from common import cpu_name, show, write_lines

BATCH = 512


def torch_child(threads, bf16, steps):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    torch.set_num_threads(threads)
    layers, width = [], 784
    for _ in range(4):
        layers += [nn.Linear(width, 512), nn.ReLU()]
        width = 512
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, y = torch.randn(BATCH, 784), torch.randint(0, 10, (BATCH,))

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        opt.step()

    for _ in range(5):
        step()
    times = []
    for _ in range(steps):
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    print(json.dumps(dict(ms=statistics.median(times) * 1e3, version=torch.__version__)))


def run_torch(a, bf16):
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads), OPENBLAS_NUM_THREADS=str(a.threads))
    argv = [a.python, os.path.abspath(__file__), "--torch-child", "--threads", str(a.threads),
            "--steps", str(a.steps)] + (["--bf16"] if bf16 else [])
    r = subprocess.run(argv, capture_output=True, text=True, env=env)
    if r.returncode:
        return None, (r.stderr.strip().splitlines() or ["failed"])[-1]
    v = json.loads(r.stdout.strip().splitlines()[-1])
    return v["ms"], v["version"]


def run_brim(a, data, bf16, scratch):
    out = os.path.join(scratch, "brim.jsonl")
    if os.path.exists(out):
        os.remove(out)
    config = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mlp.yaml")
    argv = [a.brim, "bench", "--config", config, "--data-path", data, "--device", a.device,
            "--threads", str(a.threads), "--batch-sizes", str(BATCH), "--num-workers", "0",
            "--precisions", "bf16" if bf16 else "fp32", "--steps", str(a.steps), "--output", out,
            "--quiet"]
    r = subprocess.run(argv, capture_output=True, text=True, cwd=scratch)
    if r.returncode:
        return None, (r.stderr.strip().splitlines() or ["failed"])[-1]
    with open(out) as f:
        rec = json.loads(f.readline())
    if rec["failure"]:
        return None, rec["failure"]["message"]
    return rec["total"]["median_ms"], rec["where"]["library"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default="build/bin/brim")
    p.add_argument("--make-idx", default="build/bin/brim-make-idx")
    p.add_argument("--python", default="/usr/bin/python3")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--output")
    p.add_argument("--torch-child", action="store_true")
    p.add_argument("--bf16", action="store_true")
    a = p.parse_args()
    if a.torch_child:
        return torch_child(a.threads, a.bf16, a.steps)
    a.brim, a.make_idx = os.path.abspath(a.brim), os.path.abspath(a.make_idx)
    records = []
    with tempfile.TemporaryDirectory() as scratch:
        data = os.path.join(scratch, "data")
        subprocess.run([a.make_idx, data], check=True, stdout=subprocess.DEVNULL)
        for bf16 in (False, True):
            brim_ms, torch_ms, notes = [], [], {}
            for _ in range(a.rounds):
                for name, times, result in (("brim", brim_ms, run_brim(a, data, bf16, scratch)),
                                            ("torch", torch_ms, run_torch(a, bf16))):
                    if result[0] is not None:
                        times.append(result[0])
                    notes[name] = result[1]
            rec = dict(benchmark="mlp_step", model="mlp 784-512x4-10", batch=BATCH,
                       precision="bf16" if bf16 else "fp32", threads=a.threads, cpu=cpu_name(),
                       arch=platform.machine(), rounds=a.rounds, steps=a.steps, brim_note=notes["brim"],
                       torch_note=notes["torch"],
                       command=" ".join(["benchmarks/compare/mlp_step.py", f"--threads {a.threads}",
                                         f"--rounds {a.rounds}", f"--steps {a.steps}"]))
            for name, times in (("brim", brim_ms), ("torch", torch_ms)):
                ms = statistics.median(times) if times else None
                rec[name + "_ms"] = ms
                rec[name + "_ms_rounds"] = times
                rec[name + "_samples_per_s"] = BATCH / ms * 1e3 if ms else None
            rec["ratio"] = rec["torch_ms"] / rec["brim_ms"] if brim_ms and torch_ms else None
            records.append(rec)
            print("%s  brim %s samples/s (%s)  PyTorch %s samples/s (%s)  ratio %s" % (
                rec["precision"], show(rec["brim_samples_per_s"], "%.0f"), notes["brim"],
                show(rec["torch_samples_per_s"], "%.0f"), notes["torch"], show(rec["ratio"], "%.2f")),
                flush=True)
    if a.output:
        write_lines(a.output, records)


if __name__ == "__main__":
    sys.exit(main())
