#!/usr/bin/env python3
"""Does the loader's memory grow? 200 epochs of a 2 GB HDF5 set in random order; what is resident after the
last epoch must be that after the second within 1 %.

  benchmarks/compare/growth.py --bench-loader build/bin/bench_loader --output benchmarks/results/NAME.jsonl

Compared are the process's own pages (RssAnon + RssShmem) and VmRSS, which counts the pages of the file that
are mapped as well. Exit status 1 when either grew. Needs h5py and numpy for the file."""
import argparse, json, os, platform, statistics, subprocess, sys, time

import common, e2e

KEYS = ("rss_bytes", "rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes", "planned_live_bytes", "allocations")


def run(a):
    """The head record, and {epoch: record}."""
    argv = [a.bench_loader, "--dataset", "hdf5(inputs=[x], targets=[y])", "--path", a.file, "--batch", str(a.batch),
            "--workers", str(a.workers), "--epochs", str(a.epochs), "--json"]
    argv += ["--transform", a.transform] if a.transform else []
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    head, epochs, started = None, {}, time.monotonic()
    for line in child.stdout:
        r = json.loads(line)
        if r.get("event") == "epoch":
            epochs[r["epoch"]] = r
            print("epoch %4d: own %.2f MB, all %.1f MB, %.2f s" % (
                r["epoch"], own(r) / 1e6, r["rss_bytes"] / 1e6, r["seconds"]), flush=True)
        else:
            head = r
        if time.monotonic() - started > a.limit:
            child.kill()
            break
    errors = child.communicate()[1]
    if child.returncode and not epochs:
        sys.exit("growth.py: %s" % errors.strip())
    return dict(head, command=e2e.shown(argv)), epochs


def own(r):
    return r["rss_anon_bytes"] + r["rss_shmem_bytes"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench-loader", default="build/bin/bench_loader")
    p.add_argument("--file", default="/tmp/brim-growth.h5", help="made when it is not there")
    p.add_argument("--megabytes", type=int, default=2048)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--transform")
    p.add_argument("--share", type=float, default=0.01, help="by which it may differ")
    p.add_argument("--limit", type=float, default=900, help="seconds")
    p.add_argument("--output")
    a = p.parse_args()
    import data_files
    a.bench_loader = os.path.abspath(a.bench_loader)
    rows = a.megabytes * (1 << 20) // 4096
    data_files.make_hdf5(a.file, rows, (1024,), data_files.random_signals)
    data_files.warm(a.file)
    head, epochs = run(a)
    if a.epochs not in epochs or 2 not in epochs:
        print("ended before epoch %d: nothing to say" % a.epochs)
        return 1
    first, last = epochs[2], epochs[a.epochs]
    grown = {"own": own(last) / own(first) - 1, "all": last["rss_bytes"] / first["rss_bytes"] - 1}
    good = all(abs(g) <= a.share for g in grown.values())
    print("after %d epochs over after 2: own pages %+.3f %%, VmRSS %+.3f %% (allowed %g %%): %s" % (
        a.epochs, 100 * grown["own"], 100 * grown["all"], 100 * a.share, "reached" if good else "MISSED"))
    rec = dict(benchmark="growth", cpu=common.cpu_name(), arch=platform.machine(), file_bytes=os.path.getsize(a.file),
               samples=rows, epochs=a.epochs, workers=a.workers, batch=a.batch, brim_command=head["command"],
               command="benchmarks/compare/growth.py --megabytes %d --epochs %d" % (a.megabytes, a.epochs),
               grown_own=grown["own"], grown_all=grown["all"], allowed=a.share, reached=good,
               seconds_per_epoch=statistics.median(r["seconds"] for r in epochs.values()),
               after={str(e): {k: epochs[e][k] for k in KEYS} for e in (1, 2, 20, 100, a.epochs) if e in epochs})
    if a.output:
        common.write_lines(a.output, [rec])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
