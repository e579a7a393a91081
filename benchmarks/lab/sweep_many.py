#!/usr/bin/env python3
"""A sweep of many queued experiments: how long `brim sweep` takes to submit them, how long
`brim sweep status` takes from another terminal, and how much memory the sweep needs, once with events
and once with the live table in a terminal of 200 x 60.

    benchmarks/lab/sweep_many.py build/bin/brim [--experiments 10000] [--seconds 20]

Prints one JSON object. One experiment trains meanwhile, on the CPU."""
import argparse
import json
import os
import pathlib
import platform
import pty
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
import fcntl

GRID = """name: many
backend: ref
device: cpu
threads: 1
dataset: synthetic(shape=[6], classes=3, samples=96)
model: mlp(depth=1, hidden=8)
data: {{num_workers: 0}}
training.epochs: 1000
lr: logspace(1e-5, 1, {points})
seeds: {seeds}
"""


def peak_mb(pid):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


def time_status(brim, folder, words=()):
    times = []
    for _ in range(10):
        start = time.monotonic()
        subprocess.run([brim, "sweep", "status", "runs/many", *words], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.monotonic() - start)
    return statistics.median(times), max(times)


def end(process):
    process.send_signal(signal.SIGINT)
    process.wait(timeout=120)


def with_events(brim, folder, seconds):
    start = time.monotonic()
    process = subprocess.Popen([brim, "sweep", "grid.yaml", "--json"], cwd=folder,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    event = json.loads(process.stdout.readline())
    submitted = time.monotonic() - start
    assert event["event"] == "submitted", event
    out = {"added": event["added"], "submit_s": submitted}
    # the events are read, so that the sweep never waits for this program
    drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
    time.sleep(seconds)
    out["status_s"], out["status_max_s"] = time_status(brim, folder)
    out["status_all_s"], _ = time_status(brim, folder, ["--all"])
    out["peak_mb"] = peak_mb(process.pid)
    end(process)
    drain.wait()
    return out


def with_table(brim, folder, seconds):
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["TERM"] = "xterm-256color"
        os.execv(brim, [brim, "sweep", "grid.yaml"])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    until, read = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        read += len(os.read(fd, 65536))
    out = {"table_peak_mb": peak_mb(pid), "table_bytes_per_s": read / seconds}
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    out["table_cpu_share"] = (int(fields[11]) + int(fields[12])) / ticks / seconds
    os.kill(pid, signal.SIGINT)
    try:
        while os.read(fd, 65536):
            pass
    except OSError:
        pass
    os.waitpid(pid, 0)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brim")
    parser.add_argument("--experiments", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    brim = str(pathlib.Path(args.brim).resolve())
    with tempfile.TemporaryDirectory(prefix="brim-many-") as folder:
        seeds = 100
        points = max(1, args.experiments // seeds)
        pathlib.Path(folder, "grid.yaml").write_text(GRID.format(points=points, seeds=seeds))
        record = {"experiments": points * seeds, "machine": platform.machine(),
                  "cores": len(os.sched_getaffinity(0))}
        record.update(with_events(brim, folder, args.seconds))
        record.update(with_table(brim, folder, args.seconds))
        print(json.dumps(record))


if __name__ == "__main__":
    sys.exit(main())
