#!/usr/bin/env python3
"""The loader alone on two CPU cores, beside what else reads the same files, in one run.

  benchmarks/compare/loader_cpu.py --images cifar10-images.tar.xz --output benchmarks/results/NAME.jsonl

  rows        contiguous HDF5 rows of 4 KiB in random order; peer: H5Dread of a row a call      10 x
  chunks      256-KiB chunks, deflate 1, in order; peer: one thread, H5Dread of a chunk a call  1.6 x
  chunks-random   the same in random order, a chunk_cache of half of it; peer: H5Dread of a row a call  1.6 x
  chunks-kept the same with a chunk_cache that holds all of it; peer as of chunks               1.6 x
  jpeg        folder of 32 x 32 JPEGs in random order; peer: two processes of Python and PIL      3 x

The peer's files, cores and page cache are the same; rounds alternate, each a fresh process; the figure is
the median of the rounds' medians. --images is a folder with class/*.jpg, or a tar of one that is unpacked
to --scratch. Exit status 1 when a limit is missed. Needs h5py, numpy and PIL."""
import argparse, json, multiprocessing, os, platform, random, statistics, sys, tarfile, time

import common, e2e

ROW = (1024,)  # float32: 4 KiB
CHUNK_ROWS = 64  # 256 KiB
# name: limit
CASES = {"rows": 10.0, "chunks": 1.6, "chunks-random": 1.6, "chunks-kept": 1.6, "jpeg": 3.0}


# ---- the PIL reader: its own process with two workers

def pil_worker(files, seconds, barrier, queue):
    from PIL import Image
    for name in files[:200]:  # imports and code paths
        Image.open(name).convert("RGB").tobytes()
    barrier.wait()
    started, n = time.perf_counter(), 0
    while True:
        for name in files:
            with Image.open(name) as image:
                image.convert("RGB").tobytes()
            n += 1
            if n % 64 == 0 and time.perf_counter() - started >= seconds:
                return queue.put(n / (time.perf_counter() - started))


def pil_child(folder, seconds, processes):
    import PIL
    files = [os.path.join(d, n) for d, _, names in os.walk(folder) for n in names if n.endswith((".jpg", ".jpeg"))]
    files.sort()
    random.Random(1).shuffle(files)
    barrier, queue = multiprocessing.Barrier(processes), multiprocessing.Queue()
    share = [multiprocessing.Process(target=pil_worker, args=(files[i::processes], seconds, barrier, queue))
             for i in range(processes)]
    for p in share:
        p.start()
    rates = [queue.get() for _ in share]
    for p in share:
        p.join()
    print(json.dumps(dict(samples_per_s=sum(rates), version="PIL %s, Python %s" % (PIL.__version__, platform.python_version()))))


# ---- files

def unpack(path, scratch):
    """The folder with the classes; in a tar its part `train`, if it has one."""
    if os.path.isdir(path):
        return path
    folder = os.path.join(scratch, "images")
    if not os.path.exists(os.path.join(folder, "complete")):
        with tarfile.open(path) as t:
            t.extractall(folder)
        open(os.path.join(folder, "complete"), "w").close()
    train = os.path.join(folder, "train")
    return train if os.path.isdir(train) else folder


def make_files(a):
    """{case: (path, words about it)}"""
    import data_files
    os.makedirs(a.scratch, exist_ok=True)
    rows = a.megabytes * (1 << 20) // (ROW[0] * 4)
    plain, packed = os.path.join(a.scratch, "rows.h5"), os.path.join(a.scratch, "chunks.h5")
    files = {}
    if "rows" in a.case:
        data_files.make_hdf5(plain, rows, ROW, data_files.random_signals)
        files["rows"] = (plain, "%d contiguous rows of 4 KiB" % rows)
    if any(c.startswith("chunks") for c in a.case):
        data_files.make_hdf5(packed, rows, ROW, data_files.smooth_signals, CHUNK_ROWS, deflate=1)
        words = "%d rows of 4 KiB in chunks of 256 KiB, deflate 1, stored in %.2f of their bytes (sines and noise, 12 bits)" % (
            rows, data_files.stored_share(packed))
        files.update({c: (packed, words) for c in ("chunks", "chunks-random", "chunks-kept")})
    if "jpeg" in a.case and a.images:
        files["jpeg"] = (unpack(a.images, a.scratch), "JPEG folder")
    for path in sorted({p for p, _ in files.values()}):
        print("%s: %.0f MB read into the page cache" % (os.path.basename(path), data_files.warm(path) / 1e6), flush=True)
    return files


# ---- runs

def commands(a, case, path):
    """brim's command and the peer's; and further ones, which run once."""
    loader = [a.bench_loader, "--path", path, "--workers", str(a.workers), "--seconds", str(a.seconds), "--json"]
    peer = [a.bench_loader, "--path", path, "--seconds", str(a.seconds), "--json"]
    h5 = ["--dataset", "hdf5(inputs=[x], targets=[y])"]
    if case == "rows":
        return (loader + h5 + ["--batch", str(a.batch)], peer + ["--h5dread"],
                {"H5Dread of 512 rows a call, in order": peer + ["--h5dread-chunk"],
                 "brim, no workers": loader + h5 + ["--batch", str(a.batch), "--workers", "0"]})
    if case == "chunks":  # as from a file larger than memory: unpacked chunks are not kept for the next epoch
        few = ["--dataset", "hdf5(inputs=[x], targets=[y], chunk_cache=16MiB)"]
        return (loader + few + ["--batch", str(a.batch), "--no-shuffle"], peer + ["--h5dread-chunk"],
                {"H5Dread of everything in one call": peer + ["--h5dread-all"]})
    if case == "chunks-random":
        half = ["--dataset", "hdf5(inputs=[x], targets=[y], chunk_cache=%dMiB)" % (a.megabytes // 2)]
        return loader + half + ["--batch", "64", "--warmup", "2"], peer + ["--h5dread"], {}
    if case == "chunks-kept":
        kept = ["--dataset", "hdf5(inputs=[x], targets=[y], chunk_cache=%dMiB)" % (a.megabytes + 64)]
        return loader + kept + ["--batch", str(a.batch), "--warmup", "60"], peer + ["--h5dread-chunk"], {}
    return (loader + ["--dataset", "folder", "--split", "all", "--batch", str(a.batch)],
            [a.python, os.path.abspath(__file__), "--pil-child", path, "--seconds", str(a.seconds)], {})


def digest_of(argv):
    """The digest of all rows in an untimed pass, independent of their order."""
    return common.run_child(argv + ["--digest", "--seconds", "0.05", "--windows", "1", "--warmup", "0"], 300).get("digest")


def same_rows(a, case, brim, peer):
    """True if both read the same bytes; None if that cannot be compared."""
    if case == "jpeg" or case == "chunks-random":
        return None
    return digest_of(brim) is not None and digest_of(brim) == digest_of(peer)


def compare(a, case, path, words):
    brim, peer, others = commands(a, case, path)
    got, last = {"brim": [], "peer": []}, {}
    for _ in range(a.rounds):
        for who, argv in (("brim", brim), ("peer", peer)):
            r = common.run_child(argv, a.limit)
            last[who] = r
            if not r.get("failure"):
                got[who].append(r["samples_per_s"])
    rec = dict(benchmark="loader_cpu", case=case, what=words, cores=a.cores, cpu=common.cpu_name(), arch=platform.machine(),
               rounds=a.rounds, limit=CASES[case], same_rows=same_rows(a, case, brim, peer),
               command=" ".join(["benchmarks/compare/loader_cpu.py", "--case", case, "--cores", str(a.cores), "--workers",
                                 str(a.workers), "--rounds", str(a.rounds), "--seconds", str(a.seconds),
                                 "--megabytes", str(a.megabytes)]))
    for who, speeds in got.items():
        rec[who + "_samples_per_s"] = statistics.median(speeds) if speeds else None
        rec[who + "_samples_per_s_rounds"] = speeds
        rec[who + "_failure"] = last[who].get("failure")
    b, p = last["brim"], last["peer"]
    rec["brim_command"] = e2e.shown(brim)
    rec["peer_command"] = e2e.shown(peer)
    rec["peer_version"] = p.get("version")
    for key in ("mb_per_s", "sample_bytes", "timed_s", "timed_samples", "timed_over_ring", "read_us_per_sample",
                "transform_us_per_sample", "planned_host_bytes"):
        rec["brim_" + key] = b.get(key)
    rec["others"] = {name: common.run_child(argv, a.limit).get("samples_per_s") for name, argv in others.items()}
    rec["ratio"] = rec["brim_samples_per_s"] / rec["peer_samples_per_s"] if all(got.values()) else None
    rec["reached"] = rec["ratio"] is not None and rec["ratio"] >= CASES[case] and rec["same_rows"] is not False
    return rec


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench-loader", default="build/bin/bench_loader")
    p.add_argument("--python", default=sys.executable, help="with PIL, for the peer")
    p.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    p.add_argument("--images", help="folder of class/*.jpg, or a tar of one; without it jpeg is left out")
    p.add_argument("--scratch", default="/tmp/brim-loader", help="folder for the files")
    p.add_argument("--megabytes", type=int, default=512, help="of each HDF5 file, unpacked")
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--workers", type=int, default=2, help="brim's threads")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=3, help="timed, of each process")
    p.add_argument("--limit", type=float, default=120, help="seconds of one process")
    p.add_argument("--output")
    p.add_argument("--pil-child", metavar="FOLDER")
    a = p.parse_args()
    if a.pil_child:
        return pil_child(a.pil_child, a.seconds, 2)
    a.bench_loader = os.path.abspath(a.bench_loader)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:a.cores]))  # children inherit it
    files, records, missed = make_files(a), [], 0
    for case in a.case:
        if case not in files:
            print("%-14s left out: no --images" % case)
            continue
        rec = compare(a, case, *files[case])
        records.append(rec)
        missed += not rec["reached"]
        print("%-14s brim %s samples/s  peer %s  ratio %s (wanted %g: %s)%s%s" % (
            case, common.show(rec["brim_samples_per_s"]), common.show(rec["peer_samples_per_s"]),
            common.show(rec["ratio"], "%.2f"), CASES[case], "reached" if rec["reached"] else "MISSED",
            "  " + str(rec["brim_failure"] or rec["peer_failure"]) if rec["brim_failure"] or rec["peer_failure"] else "",
            "  NOT the same rows" if rec["same_rows"] is False else ""), flush=True)
        for name, speed in rec["others"].items():
            print("%-14s   %s: %s samples/s" % ("", name, common.show(speed)), flush=True)
        if a.output:
            common.write_lines(a.output, records)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
