#!/usr/bin/env python3
"""Is a training on several ranks the training of one, and what do exchanges cost? Without mpirun those ranks are left out.

  benchmarks/ranks/ranks.py --brim build/bin/brim [--device cuda] [--out FILE]      about 3 minutes

Parts (--parts a,b):
  equal    ResNet-18 (width 8) on 32x32, fp32, SGD 0.1, 100 steps from weights that have learned their data: relative L2
           distance of 2 and 4 ranks from one. Also with batch norm of each rank's own, which must be seen; and how far
           the weights moved. `random` is the same from random weights, and `ulp` one rank whose first weight differs in
           its last bit: what roundings become there.
  overlap  `brim profile` on 2 ranks: exchanges per step, and what the step waits for. Without synchronised batch norm.
  alone    on a GPU: one rank that exchanges with itself by NCCL inside the recorded step, against none; in turns.
  end      SIGKILL and SIGSTOP of one rank: seconds until all have ended.
One JSON object a line; no part is a criterion but `equal` (1e-5), which decides the exit status."""
import argparse, glob, json, math, os, platform, re, shutil, signal, struct, subprocess, sys, tempfile, time

EQUAL = """model: resnet18(width=8)
dataset: synthetic(shape=[32, 32, 3], samples=32)
data: {batch_size: 32}
optimizer: sgd
training: {learning_rate: 0.1, epochs: 200, eval_interval: 0, precision: fp32}
seed: 1
"""
LARGE = """model: resnet18%s
dataset: synthetic(shape=[32, 32, 3], samples=51200)
data: {batch_size: %d}
optimizer: sgd
training: {learning_rate: 0.05, epochs: 100, eval_interval: 0, precision: %s}
seed: 1
"""


def tensors(path):
    """Weights of a safetensors file by name, without running statistics."""
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__" or entry["dtype"] != "F32" or "running" in name:
            continue
        begin, end = entry["data_offsets"]
        out[name] = struct.unpack("<%df" % ((end - begin) // 4), data[8 + size + begin : 8 + size + end])
    return out


def distance(a, b):
    a, b = tensors(a + "/model.safetensors"), tensors(b + "/model.safetensors")
    apart = sum((p - q) ** 2 for name in a for p, q in zip(a[name], b[name]))
    return math.sqrt(apart / sum(p * p for values in a.values() for p in values))


def nudge(source, target):
    """Copies a file with one weight's last bit flipped, and without brim's checksum."""
    data = bytearray(open(source, "rb").read())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    name = next(n for n in header if header[n]["dtype"] == "F32" and n.endswith("conv1.weight"))
    data[8 + size + header[name]["data_offsets"][0]] ^= 1
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    open(target, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size :])


class Bench:
    def __init__(self, options):
        self.o = options
        self.brim = os.path.abspath(options.brim)

    def train(self, config, folder, *words, ranks=1, mpi=False, env=None):
        shutil.rmtree(folder, ignore_errors=True)
        command = [self.brim, "train", config, "--device", self.o.device, "--output-dir", folder, "--json", *words]
        if mpi:
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *root, *command]
        elif ranks > 1:
            command += ["--ranks", str(ranks)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        if done.returncode:
            raise SystemExit("%s\n%s%s" % (" ".join(command), done.stdout[-2000:], done.stderr[-2000:]))
        return next(json.loads(line) for line in done.stdout.splitlines() if '"event":"result"' in line.replace('": "', '":"'))

    def equal(self):
        open("e.yaml", "w").write(EQUAL)
        self.train("e.yaml", "learned")
        steps = ("--max-steps", "100")
        weights = ("--weights", "learned/model.safetensors")
        self.train("e.yaml", "one", *weights, *steps)
        out = {"moved": distance("learned", "one")}
        for name, how in (("shm2", dict(ranks=2)), ("mpi2", dict(ranks=2, mpi=True)), ("mpi4", dict(ranks=4, mpi=True))):
            if how.get("mpi") and not shutil.which("mpirun"):
                continue
            self.train("e.yaml", name, *weights, *steps, **how)
            out[name] = distance("one", name)
        self.train("e.yaml", "local", *weights, *steps, "sync_batchnorm=false", ranks=2)
        out["own_statistics"] = distance("one", "local")
        # from random weights: the first weights come from a run of one step with a learning rate of 0
        self.train("e.yaml", "start", "--max-steps", "1", "lr=1e-30")
        nudge("start/model.safetensors", "nudged.safetensors")
        self.train("e.yaml", "random1", "--weights", "start/model.safetensors", *steps)
        self.train("e.yaml", "random2", "--weights", "start/model.safetensors", *steps, ranks=2)
        self.train("e.yaml", "ulp", "--weights", "nudged.safetensors", *steps)
        out["random"] = {"ranks2": distance("random1", "random2"), "ulp": distance("random1", "ulp")}
        return out

    def overlap(self):
        gpu = self.o.device.startswith("cuda")
        open("l.yaml", "w").write(LARGE % ("" if gpu else "(width=32)", 256 if gpu else 16, "bf16" if gpu else "fp32"))
        command = [self.brim, "profile", "l.yaml", "ranks=2", "sync_batchnorm=false", "device=" + self.o.device,
                   "--no-price", "--json", "--output-dir", "profile"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        for line in done.stdout.splitlines():
            event = json.loads(line)
            if event.get("event") == "profile":
                return {"exchange": event["profile"]["exchange"], "step_ms": event["profile"]["step"]["ms"]}
        return None

    def alone(self):
        if not self.o.device.startswith("cuda"):
            return None
        open("l.yaml", "w").write(LARGE % ("", 512, "bf16"))
        self.train("l.yaml", "warm", "--max-steps", "100")
        rates = {"plain": [], "nccl": []}
        same = True
        for _ in range(3):
            for name in rates:
                env = {"BRIM_EXCHANGE_ALONE": "1"} if name == "nccl" else None
                rates[name].append(self.train("l.yaml", name, "--max-steps", "600", env=env)["samples_per_s"])
            same = same and tensors("plain/model.safetensors") == tensors("nccl/model.safetensors")
        plain, nccl = (sorted(rates[n])[1] for n in ("plain", "nccl"))
        return {"samples_per_s": rates, "cost_percent": 100 * (plain / nccl - 1), "same_bits": same}

    def end(self):
        out = {}
        open("e.yaml", "w").write(EQUAL)
        for sign in (signal.SIGKILL, signal.SIGSTOP):
            shutil.rmtree("end", ignore_errors=True)
            run = subprocess.Popen([self.brim, "train", "e.yaml", "--device", self.o.device, "--ranks", "3", "batch_size=30", "epochs=100000",
                                    "checkpoint.interval=5", "--output-dir", "end"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while not os.path.exists("end/last.safetensors"):
                time.sleep(0.05)
            children = [int(c) for f in glob.glob("/proc/%d/task/*/children" % run.pid) for c in open(f).read().split()]
            os.kill(max(children), sign)
            begun = time.monotonic()
            said = run.communicate()[1]
            found = re.search(r"rank \d+ \(.*", said)
            out[sign.name] = {"seconds": time.monotonic() - begun, "said": found.group(0) if found else said.strip()[-200:]}
        return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default="build/bin/brim")
    p.add_argument("--device", default="cpu")
    p.add_argument("--parts", default="equal,overlap,alone,end")
    p.add_argument("--out")
    options = p.parse_args()
    bench = Bench(options)
    record = {"what": "ranks", "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "cores": os.cpu_count(),
              "device": options.device, "load_average": os.getloadavg()[0]}
    out = os.path.abspath(options.out) if options.out else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in options.parts.split(","):
            found = getattr(bench, part)()
            if found is not None:
                record[part] = found
                print(part, json.dumps(found, indent=1), flush=True)
        os.chdir("/")
    if out:
        with open(out, "a") as f:
            f.write(json.dumps(record) + "\n")
    e = record.get("equal", {})
    return any(e.get(name, 0) > 1e-5 for name in ("shm2", "mpi2", "mpi4"))


if __name__ == "__main__":
    sys.exit(main())
