#!/usr/bin/env python3
"""What a pool must withstand on two cores, one part after the other; every part has a server and a store of its own.

    benchmarks/pool/pool.py BUILD [--parts load,listeners,pages] [--load-s 300] [--listen-s 600] [--out FILE]

load       500 workers that beat every 15 s and send 20,000 rows of metrics a second in batches of 100, beside 200
           listeners of which half read nothing: replies to beats and metrics within 100 ms (99th percentile)
listeners  200 listeners that read nothing: ordinary requests within 100 ms
pages      a store of 10,000 experiments and 10 million points in one curve: the requests of a page, each
           within 1 s

BUILD is the build folder. Run it on an idle machine: latencies are those of the whole machine. The store goes
to --folder (default: a new folder beside BUILD), because /tmp may be memory. Prints one JSON object, and
appends it to --out. The exit status is 1 when a limit is exceeded."""
import argparse
import http.client
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

LIMIT_MS, PAGE_MS, MEMORY_MB = 100, 1000, 300


class Server:
    """`brim serve` of a store, until it is closed."""

    def __init__(self, build, folder):
        self.process = subprocess.Popen(
            [build / "bin/brim", "serve", "--server-only", "--store", folder, "--output-dir", folder, "--port", "0",
             "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        event = json.loads(self.process.stdout.readline())
        assert event["event"] == "serving", event
        self.port = event["port"]
        self.pid = self.process.pid

    def memory_mb(self):
        for line in open(f"/proc/{self.pid}/status", encoding="ascii"):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=120)


class Probe:
    """The machine's own delays meanwhile: how late a sleep of 5 ms ends, and how long 4 KiB take to reach the disk of
    the store. A request cannot be faster than these."""

    def __init__(self, folder):
        self.late, self.sync, self.slow = 0.0, 0.0, []
        self.start, self.ended = time.monotonic(), threading.Event()
        self.file = open(folder.parent / "probe", "wb", buffering=0)
        self.threads = [threading.Thread(target=run) for run in (self.sleep, self.write)]
        for thread in self.threads:
            thread.start()

    def note(self, what, ms):
        if ms > LIMIT_MS / 2 and len(self.slow) < 200:
            self.slow.append([round(time.monotonic() - self.start, 2), what, round(ms, 1)])
        return ms

    def sleep(self):
        while not self.ended.is_set():
            before = time.monotonic()
            time.sleep(0.005)
            self.late = max(self.late, self.note("late", (time.monotonic() - before) * 1e3 - 5))

    def write(self):
        while not self.ended.wait(0.1):
            before = time.monotonic()
            os.pwrite(self.file.fileno(), os.urandom(4096), 0)
            os.fdatasync(self.file.fileno())
            self.sync = max(self.sync, self.note("sync", (time.monotonic() - before) * 1e3))

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        self.file.close()
        return {"late_max_ms": round(self.late, 1), "sync_max_ms": round(self.sync, 1), "slow": self.slow}


def generate(build, server, options):
    words = [str(w) for pair in options.items() for w in (f"--{pair[0]}", pair[1])]
    done = subprocess.run([build / "bin/bench_pool", "--port", str(server.port), "--pid", str(server.pid), *words],
                          stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"bench_pool ended with {done.returncode}")
    return json.loads(done.stdout)


def part_load(build, folder, args):
    with Server(build, folder) as server:
        out = generate(build, server, {"seconds": args.load_s, "workers": 500, "rows": 20000, "listeners": 200})
    good = out["errors"] == out["missed"] == 0
    out["good"] = (good and out["beat"]["p99_ms"] < LIMIT_MS and out["metrics"]["p99_ms"] < LIMIT_MS
                   and out["server"]["peak_mb"] < MEMORY_MB)
    return out


def part_listeners(build, folder, args):
    with Server(build, folder) as server:
        probe = Probe(folder)
        out = generate(build, server, {"seconds": args.listen_s, "workers": 50, "beat": 1, "rows": 1000, "reads": 10,
                                       "listeners": args.listeners, "asleep": args.listeners})
        out["machine"] = probe.end()
    slowest = max(out[kind]["max_ms"] for kind in ("beat", "list", "counts", "curve"))
    out["good"] = slowest < LIMIT_MS and out["errors"] == 0
    return out


def time_request(connection, method, path, body=None, times=7):
    took = []
    for _ in range(times):
        start = time.monotonic()
        connection.request(method, path, body=json.dumps(body) if body else None)
        reply = connection.getresponse()
        size = len(reply.read())
        took.append((time.monotonic() - start) * 1e3)
        assert reply.status == 200, (path, reply.status)
    return {"first_ms": took[0], "median_ms": statistics.median(took[1:]), "max_ms": max(took), "bytes": size}


def part_pages(build, folder, args):
    start = time.monotonic()
    done = subprocess.run([build / "bin/bench_pool_fill", folder, "--experiments", str(args.experiments), "--points",
                           str(args.points)], stdout=subprocess.PIPE, text=True, check=True)
    ids = done.stdout.split()
    out = {"experiments": args.experiments, "points": args.points, "fill_s": time.monotonic() - start,
           "store_mb": os.path.getsize(folder / "lab.sqlite") / 1e6}
    with Server(build, folder) as server:
        c = http.client.HTTPConnection("127.0.0.1", server.port)
        curve = f"/v1/exps/{ids[0]}/curve?key=train_loss&points="
        middle = args.points // 2
        out["requests"] = {
            "page": time_request(c, "GET", "/"),
            "counts": time_request(c, "GET", "/v1/counts"),
            "list of 100": time_request(c, "GET", "/v1/exps?limit=100"),
            "list of all": time_request(c, "GET", "/v1/exps"),
            "groups": time_request(c, "GET", "/v1/groups?grid=bench-fill&key=val_accuracy&over=seed"),
            "keys": time_request(c, "GET", "/v1/keys?grid=bench-fill"),
            "curve in 1000 points": time_request(c, "GET", curve + "1000"),
            "part of the curve": time_request(c, "GET", curve + f"1000&first={middle}&last={middle + 20000}"),
            "10 curves": time_request(c, "POST", "/v1/curves",
                                      {"exps": ids[1:], "key": "train_loss", "points": 500}),
        }
        c.close()
        out["server"] = {"peak_mb": server.memory_mb()}
    slow = [name for name, r in out["requests"].items() if r["max_ms"] >= PAGE_MS]
    out["good"] = not slow and out["server"]["peak_mb"] < MEMORY_MB
    return out


PARTS = {"load": part_load, "listeners": part_listeners, "pages": part_pages}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--load-s", type=float, default=300)
    p.add_argument("--listen-s", type=float, default=600)
    p.add_argument("--listeners", type=int, default=200)
    p.add_argument("--experiments", type=int, default=10000)
    p.add_argument("--points", type=int, default=10000000)
    p.add_argument("--folder", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path)
    args = p.parse_args()
    build = args.build.resolve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pool-", dir=args.folder or build.parent))
    record = {"what": "pool", "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
              "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    try:
        for name in args.parts.split(","):
            record[name] = PARTS[name](build, folder / name, args)
            shutil.rmtree(folder / name, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    line = json.dumps(record)
    print(line)
    if args.out:
        with open(args.out, "a", encoding="utf-8") as f:
            f.write(line + "\n")
    return 0 if all(record[name]["good"] for name in args.parts.split(",")) else 1


if __name__ == "__main__":
    sys.exit(main())
