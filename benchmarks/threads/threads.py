#!/usr/bin/env python3
"""Wall time of whole trainings with one and with two threads on two cores, idle and beside busy loops.

    benchmarks/threads/threads.py BRIM MNIST_FOLDER RECORD.jsonl [--rounds 5] [--cpus 0,1]

Rounds alternate between the thread counts, so that a slow moment of the machine meets both. One line of
the record is one workload and one machine state: medians, all times, and the ratio of two threads to the
best. The commands are those that users type; only the lengths are shorter."""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

COMMANDS = {
    "cartpole": ["train", "mappo", "env=cartpole", "mappo.iterations=60"],
    "uav": ["train", "uav", "mappo.iterations=3"],
    "mnist": ["train", "mnist-mlp", "--data-path", "{mnist}", "--epochs", "1"],
}


def seconds(brim, command, threads, mnist):
    with tempfile.TemporaryDirectory() as out:
        argv = [brim] + [a.format(mnist=mnist) for a in command]
        argv += [f"threads={threads}", "device=cpu", "--output-dir", os.path.join(out, "run")]
        start = time.monotonic()
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stderr}")
        return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("brim")
    parser.add_argument("mnist")
    parser.add_argument("record")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpus", default="0,1", help="the cores that brim and the busy loops share")
    args = parser.parse_args()
    os.sched_setaffinity(0, {int(c) for c in args.cpus.split(",")})
    brim, mnist = os.path.abspath(args.brim), os.path.abspath(args.mnist)
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((l.split(":")[1].strip() for l in f if l.startswith("model name")),
                     platform.machine())
    for busy in (0, 2):
        loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(busy)]
        try:
            for name, command in COMMANDS.items():
                times = {1: [], 2: []}
                for _ in range(args.rounds):
                    for threads in times:
                        times[threads].append(seconds(brim, command, threads, mnist))
                medians = {t: statistics.median(v) for t, v in times.items()}
                line = {"schema": "brim.threads/1", "workload": name, "busy_loops": busy,
                        "cpu": model, "cpus": args.cpus, "command": ["brim"] + command,
                        "seconds": {str(t): round(m, 3) for t, m in medians.items()},
                        "all": {str(t): [round(x, 3) for x in v] for t, v in times.items()},
                        "two_over_best": round(medians[2] / min(medians.values()), 3)}
                print(f"{name:10} {busy} busy loops: {medians[1]:.2f} s with one thread, "
                      f"{medians[2]:.2f} s with two")
                with open(args.record, "a", encoding="utf-8") as f:
                    f.write(json.dumps(line) + "\n")
        finally:
            for loop in loops:
                loop.kill()


if __name__ == "__main__":
    main()
