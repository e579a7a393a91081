#!/usr/bin/env python3
"""Do the values of `brim top` agree with nvidia-smi's? Field by field, on a machine with an NVIDIA GPU.

  benchmarks/profile/agree_smi.py --brim build/bin/brim [--output FILE]     about 30 s
  benchmarks/profile/agree_smi.py --brim build/bin/brim --impact            about a minute
  benchmarks/profile/agree_smi.py --recording F --dmon F --pmon F --gpm F   compares saved output; needs no GPU

Starts a training as load, waits until the GPU is busy, then runs side by side for --seconds:
`brim top --record`, `nvidia-smi dmon -s pucvmet`, `nvidia-smi dmon --gpm-metrics`, `nvidia-smi pmon`. A value
agrees when it lies between the smallest and the largest of nvidia-smi's samples at most one sample away, widened by a
tolerance for rounding. Both PCIe figures are bursts of 20 ms in nvidia-smi and means in brim: their medians are
compared. `nvidia-smi --query-gpu` and `brim top --once --json` give the facts that do not change.

Prints a line per field: brim's median, nvidia-smi's, the largest distance, how many readings agree, verdict. Also how
much of a core `brim top` used, and what each NVML call costs here. Exit status 1 when a field disagrees or top used more
than 1 % of a core.

--impact measures a training step with and without `brim top`, by turns. Exit status 1 when the medians differ by more
than 1 %."""
import argparse, ctypes, json, os, signal, statistics, subprocess, sys, tempfile, time

MIB = 1048576.0
LOAD = ["train", "dataset=synthetic(shape=(32, 32, 3), classes=10, samples=50000, val_samples=1000)", "model=resnet18",
        "precision=bf16", "device=cuda", "--batch-size", "512", "training.epochs=1000000", "training.eval_interval=0"]

# dmon's column: brim's key, factor from brim's unit to dmon's, tolerance (absolute, relative), how to compare
DMON = {
    "pwr": ("power_w", 1, 3, 0.03, "near"),
    "gtemp": ("temperature_c", 1, 1, 0, "near"),
    "mtemp": ("memory_temperature_c", 1, 1, 0, "near"),
    "sm": ("gpu_percent", 1, 3, 0, "near"),
    "mem": ("memory_busy_percent", 1, 3, 0, "near"),
    "enc": ("encoder_percent", 1, 1, 0, "near"),
    "dec": ("decoder_percent", 1, 1, 0, "near"),
    "jpg": ("jpeg_percent", 1, 1, 0, "near"),
    "ofa": ("ofa_percent", 1, 1, 0, "near"),
    "mclk": ("memory_clock_mhz", 1, 15, 0, "near"),
    "pclk": ("clock_mhz", 1, 15, 0, "near"),
    "pviol": ("power_violation_percent", 1, 2, 0, "near"),
    "tviol": ("thermal_violation_percent", 1, 0, 0, "flag"),
    "fb": ("memory_used", 1 / MIB, 2, 0, "near"),
    "bar1": ("bar1_used", 1 / MIB, 2, 0, "near"),
    "ccpm": ("confidential_used", 1 / MIB, 1, 0, "near"),
    "sbecc": ("ecc_corrected", 1, 0, 0, "near"),
    "dbecc": ("ecc_uncorrected", 1, 0, 0, "near"),
    "pci": ("pcie_replays", 1, 0, 0, "near"),
    "rxpci": ("pcie_rx", 1 / MIB, 10, 0.35, "median"),
    "txpci": ("pcie_tx", 1 / MIB, 10, 0.35, "median"),
}
# GPM figures of two programs over intervals that begin at different times
GPM = {
    "smutil": ("sm_percent", 1, 3, 0.1, "near"),
    "smocc": ("occupancy_percent", 1, 2, 0.1, "near"),
    "mmaact": ("tensor_percent", 1, 2, 0.1, "near"),
    "dram": ("dram_percent", 1, 2, 0.1, "near"),
}
PMON = {"sm": "sm_percent", "mem": "memory_busy_percent", "enc": "encoder_percent", "dec": "decoder_percent",
        "jpg": "jpeg_percent", "ofa": "ofa_percent"}
FLAGS = {"enabled": True, "disabled": False, "yes": True, "no": False, "active": True}
# --query-gpu's field: brim's key, factor, tolerance; a factor of None compares texts and flags
QUERY = {
    "uuid": ("uuid", None, 0), "name": ("name", None, 0), "pci.bus_id": ("bus", None, 0), "index": ("index", 1, 0),
    "pstate": ("pstate", "pstate", 0),
    "memory.total": ("memory_total", 1 / MIB, 1), "memory.reserved": ("memory_reserved", 1 / MIB, 1),
    "power.limit": ("power_limit_w", 1, 0.1), "power.default_limit": ("power_limit_default_w", 1, 0.1),
    "power.max_limit": ("power_limit_max_w", 1, 0.1),
    "clocks.max.sm": ("clock_max_mhz", 1, 0), "clocks.max.memory": ("memory_clock_max_mhz", 1, 0),
    "pcie.link.gen.max": ("pcie_generation_max", 1, 0), "pcie.link.width.max": ("pcie_width_max", 1, 0),
    "pcie.link.gen.current": ("pcie_generation", 1, 0), "pcie.link.width.current": ("pcie_width", 1, 0),
    "persistence_mode": ("persistence", None, 0), "mig.mode.current": ("mig", None, 0),
    "compute_mode": ("compute_mode", None, 0), "ecc.mode.current": ("ecc", None, 0),
    "ecc.errors.corrected.aggregate.total": ("ecc_corrected_total", 1, 0),
    "ecc.errors.uncorrected.aggregate.total": ("ecc_uncorrected_total", 1, 0),
    "fan.speed": ("fan_percent", 1, 3),
}
REMAPPED = {"remapped_rows.correctable": ("remapped_corrected", 1, 0),
            "remapped_rows.uncorrectable": ("remapped_uncorrected", 1, 0),
            "remapped_rows.pending": ("remap_pending", None, 0), "remapped_rows.failure": ("remap_failed", None, 0)}


def number(text):
    try:
        return float(str(text).split()[0])
    except (ValueError, IndexError):
        return None


def read_columns(path, most_names=64):
    """Rows of dmon or pmon as dicts: names from the line of headings, `time_s` from -o T if it is there."""
    rows, names, day = [], [], time.strftime("%Y%m%d")
    for line in open(path, errors="replace"):
        words = line.split()
        if line.startswith("#"):
            words = line[1:].split()
            if words and words[0].lower() in ("gpu", "time", "date"):
                names = [w.lower() for w in words[:most_names]]
            continue
        if not names or len(words) < len(names):
            continue
        row = dict(zip(names, words))
        if "time" in row:
            try:
                row["time_s"] = time.mktime(time.strptime(day + row["time"], "%Y%m%d%H:%M:%S"))
            except ValueError:
                pass
        rows.append(row)
    return rows


def read_recording(path):
    views = []
    for line in open(path, errors="replace"):
        try:
            views.append(json.loads(line))
        except ValueError:
            pass  # the last line was cut off
    return views


def shown(value):
    return "-" if value is None else "%.4g" % value


class Report:
    def __init__(self):
        self.rows, self.bad = [], 0

    def add(self, source, field, ours, theirs, distance, note, good):
        """good: True, False, or None if nvidia-smi prints no value to compare with."""
        verdict = "agrees" if good else "brim alone" if good is None else "DISAGREES"
        self.bad += good is False
        self.rows.append({"source": source, "field": field, "brim": ours, "nvidia_smi": theirs, "distance": distance,
                          "readings": note, "verdict": verdict})
        print("%-6s %-42s %12s %12s %10s  %-9s %s" % (source, field, ours if isinstance(ours, str) else shown(ours),
              theirs if isinstance(theirs, str) else shown(theirs), shown(distance), note, verdict), flush=True)


def outside(value, low, high):
    return max(low - value, value - high, 0)


def neighbours(rows, when, column, period):
    """Samples at most one row away, because -o T has whole seconds, and a row is printed after its interval."""
    times = [r for r in rows if "time_s" in r]
    near = [r for r in times if abs(r["time_s"] + 0.5 - when) <= period + 1.0] if times else rows
    return [v for v in (number(r.get(column)) for r in near) if v is not None]


def compare(report, source, column, rule, views, rows, gpu, period):
    """One column of dmon against one key of brim's readings."""
    key, factor, absolute, relative, how = rule
    rows = [r for r in rows if r.get("gpu") == str(gpu)]
    if not rows or column not in rows[0]:
        return
    ours = []
    for view in views:
        found = [g for g in view["gpus"] if g["index"] == gpu and not g.get("slice")]
        value = found[0].get(key) if found else None
        if value is not None:
            ours.append((view["when_s"], value * factor))
    theirs = [v for v in (number(r[column]) for r in rows) if v is not None]
    if not ours or not theirs:
        # a value that nvidia-smi does not print cannot be compared; a value that only brim lacks is a fault
        good = True if not ours and not theirs else None if ours else False
        report.add(source, "%s %s" % (column, key), None if not ours else ours[-1][1], None if not theirs else theirs[-1],
                   None, "", good)
        return
    middle, their_middle = statistics.median(v for _, v in ours), statistics.median(theirs)
    agree, worst = 0, 0.0
    for when, value in ours:
        near = neighbours(rows, when, column, period) or theirs
        if how == "median":
            low = high = their_middle
            value = middle
        else:
            low, high = min(near), max(near)
        if how == "flag":
            value = float(value > 0)
        allowed = max(absolute, relative * max(abs(low), abs(high))) + 0.5 + 1e-9  # nvidia-smi prints whole numbers
        away = outside(value, low, high)
        worst = max(worst, away)
        agree += away <= allowed
    good = agree == len(ours) if how == "median" else agree >= len(ours) - len(ours) // 8
    report.add(source, "%s %s" % (column, key), middle, their_middle, worst, "%d/%d" % (agree, len(ours)), good)


def compare_pmon(report, views, rows, gpu):
    """Compares each process's range over the window, because nvidia-smi prints '-' for a process that was idle in a
    sample."""
    rows = [r for r in rows if r.get("gpu") == str(gpu) and number(r.get("pid")) is not None]
    listed = {int(r["pid"]) for r in rows}
    found = {p["pid"] for v in views for p in v["processes"] if p["gpu"] == gpu}
    report.add("pmon", "processes", float(len(found)), float(len(listed)), float(len(found ^ listed)),
               "", found == listed if listed or found else None)
    for pid in sorted(listed & found)[:4]:
        mine = [p for v in views for p in v["processes"] if p["gpu"] == gpu and p["pid"] == pid]
        for column, key in PMON.items():
            theirs = [n for n in (number(r.get(column)) for r in rows if int(r["pid"]) == pid) if n is not None]
            ours = [p[key] for p in mine if p.get(key) is not None]
            if not theirs and not any(ours):
                report.add("pmon", "%d %s" % (pid, key), ours[-1] if ours else None, None, None, "", True)
                continue
            if not theirs or not ours:
                report.add("pmon", "%d %s" % (pid, key), statistics.median(ours) if ours else None,
                           statistics.median(theirs) if theirs else None, None, "", not any(theirs + ours))
                continue
            away = [outside(v, min(theirs), max(theirs)) for v in ours]
            agree = sum(a <= 5 for a in away)
            report.add("pmon", "%d %s" % (pid, key), statistics.median(ours), statistics.median(theirs), max(away),
                       "%d/%d" % (agree, len(ours)), agree >= len(ours) - max(1, len(ours) // 4))
        name = next((r.get("command", "") for r in rows if int(r["pid"]) == pid), "")
        command = mine[-1].get("command") or ""
        if name and mine[-1].get("elsewhere") is False:
            report.add("pmon", "%d command" % pid, command[:12], name[:12], None, "",
                       command.split(" ")[0].startswith(name[:15].rstrip(".+")))


def compare_query(report, gpu, values):
    for field, (key, factor, tolerance) in list(QUERY.items()) + list(REMAPPED.items()):
        if field not in values:
            continue
        theirs, ours = values[field].strip(), gpu.get(key)
        absent = theirs.startswith("[") or theirs in ("", "N/A")
        name = "%s %s" % (field, key)
        if absent or ours is None or ours == "":
            report.add("query", name, "-" if ours in (None, "") else str(ours)[:12], "-" if absent else theirs[:12], None, "",
                       None if absent and ours not in (None, "") else absent)
        elif factor == "pstate":
            report.add("query", name, "P%d" % ours, theirs, None, "", "P%d" % ours == theirs)
        elif factor is None:
            plain = lambda text: text.lower().replace("e. process", "exclusive_process").replace(" ", "_")
            same = FLAGS.get(theirs.lower()) == ours if isinstance(ours, bool) else plain(theirs) == plain(str(ours))
            report.add("query", name, str(ours)[-12:], theirs[-12:], None, "", same)
        else:
            value, other = ours * factor, number(theirs)
            good = other is not None and abs(value - other) <= tolerance + 0.5
            report.add("query", name, value, other, None if other is None else abs(value - other), "", good)


def smi_query(gpu):
    """Queries all fields at once; one by one if this nvidia-smi lacks one of them."""
    def ask(option, fields):
        run = subprocess.run(["nvidia-smi", "-i", str(gpu), "--%s=%s" % (option, ",".join(fields)),
                              "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10)
        cells = run.stdout.strip().split("\n")[0].split(",")
        return dict(zip(fields, cells)) if run.returncode == 0 and len(cells) == len(fields) else None

    values, end = {}, time.time() + 6
    for option, fields in (("query-gpu", list(QUERY)), ("query-remapped-rows", list(REMAPPED))):
        found = ask(option, fields)
        for field in fields if found is None else []:
            if time.time() < end:
                values.update(ask(option, [field]) or {})
        values.update(found or {})
    return values


def busy(gpu):
    run = subprocess.run(["nvidia-smi", "-i", str(gpu), "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"],
                         capture_output=True, text=True, timeout=10)
    return number(run.stdout) or 0


def stop(process, how=signal.SIGINT, wait_s=5):
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid):
    try:
        words = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def measure(args, folder):
    """Runs all programs side by side; returns the files for compare(), and the share of a core that top used."""
    path = lambda name: os.path.join(folder, name)
    count, load = max(4, int(args.seconds)), None
    try:
        if not args.no_load:
            words = args.load.split() if args.load else [args.brim] + LOAD + ["--output-dir", path("run")]
            load = subprocess.Popen(words, stdout=open(path("load.txt"), "w"), stderr=subprocess.STDOUT, cwd=folder)
            end = time.time() + 12
            while time.time() < end and load.poll() is None and busy(args.gpu) < 20:
                time.sleep(0.5)
            if load.poll() is not None:
                print("the load ended: %s" % open(path("load.txt")).read()[-500:], file=sys.stderr)
            time.sleep(2)
        common, smi = ["-i", str(args.gpu), "-d", "1", "-c", str(count), "-o", "T"], []
        for name, words in (("dmon", ["dmon", "-s", "pucvmet"]), ("gpm", ["dmon", "-s", "p", "--gpm-metrics", "2,3,5,10"]),
                            ("pmon", ["pmon", "-s", "u"])):
            smi.append(subprocess.Popen(["nvidia-smi"] + words + common, stdout=open(path(name), "w"),
                                        stderr=subprocess.DEVNULL))
        top = subprocess.Popen([args.brim, "top", "--interval", "1", "--record", path("recording")],
                               stdout=subprocess.DEVNULL, stderr=open(path("top.txt"), "w"), stdin=subprocess.DEVNULL)
        time.sleep(2)  # the cost of opening does not count in the share
        start, began = cpu_seconds(top.pid), time.time()
        time.sleep(count - 1)
        used, passed = cpu_seconds(top.pid), time.time() - began
        for process in smi:
            stop(process, wait_s=3)
        stop(top)
        once = subprocess.run([args.brim, "top", "--once", "--json"], capture_output=True, text=True, timeout=10)
        query = smi_query(args.gpu)
        if top.returncode not in (0, 130, -signal.SIGINT):
            print("brim top: status %s: %s" % (top.returncode, open(path("top.txt")).read()[-500:]), file=sys.stderr)
    finally:
        if load:
            stop(load, signal.SIGINT, 4)
    share = None if start is None or used is None else 100 * (used - start) / passed
    return once.stdout, query, share


def call_costs(index):
    """Wall and CPU time of the calls that `brim top` makes, in microseconds: they explain its cost."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        device, room, number_of = ctypes.c_void_p(), ctypes.create_string_buffer(65536), ctypes.c_uint(0)
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
            return {}
    except (OSError, AttributeError):
        return {}
    fields = (ctypes.c_uint * 10)(82)
    memory = (ctypes.c_uint * 10)(0x02000028)
    count = ctypes.byref(number_of)
    calls = {"UtilizationRates": [room], "PowerUsage": [room], "TotalEnergyConsumption": [room], "ClockInfo": [1, room],
             "Temperature": [0, room], "FieldValues": [1, fields], "MemoryInfo_v2": [memory], "BAR1MemoryInfo": [room],
             "EncoderUtilization": [room, count], "OfaUtilization": [room, count], "ViolationStatus": [0, room],
             "CurrentClocksEventReasons": [room], "PerformanceState": [room], "CurrPcieLinkGeneration": [room],
             "TotalEccErrors": [0, 0, room], "PcieReplayCounter": [room], "ComputeRunningProcesses_v3": [count, room],
             "GraphicsRunningProcesses_v3": [count, room], "ProcessUtilization": [room, count, ctypes.c_ulonglong(0)]}
    costs, sample = {}, ctypes.c_void_p()
    if hasattr(nvml, "nvmlGpmSampleAlloc") and nvml.nvmlGpmSampleAlloc(ctypes.byref(sample)) == 0:
        calls["GpmSampleGet"] = None
    for name, words in calls.items():
        call = getattr(nvml, "nvmlGpmSampleGet" if words is None else "nvmlDeviceGet" + name, None)
        if call is None:
            continue
        repeats, code = 20, 0
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            number_of.value = 64
            code = call(device, *([sample] if words is None else words))
        costs[name] = {"wall_us": round((time.perf_counter() - wall) / repeats * 1e6, 1),
                       "cpu_us": round((time.process_time() - cpu) / repeats * 1e6, 1), "code": code}
    return costs


def step_ms(args, folder, with_top):
    """The median step by the first setting of `brim bench`, beside `brim top` in its live form or alone."""
    words = [args.brim, "bench", LOAD[1], "model=resnet18", "device=cuda", "data.num_workers=4", "--batch-sizes", "512",
             "--num-workers", "4", "--precisions", "bf16", "--steps", "150", "--repeats", "1", "--json"]
    if args.load:
        words = args.load.split()
    top = subprocess.Popen([args.brim, "top", "--interval", "1", "--record", os.path.join(folder, "beside")],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if with_top else None
    bench = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
    try:
        for line in bench.stdout:
            event = json.loads(line)
            if event.get("event") == "trial":
                return event["result"]["total"]["median_ms"]
    except (ValueError, KeyError, TypeError):
        pass
    finally:
        stop(bench, signal.SIGKILL)
        if top:
            stop(top)
    return None


def impact(args):
    """Measures alone and beside top by turns, so that a drift of the clock affects both."""
    found = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(6):
            value = step_ms(args, folder, turn % 2 == 1)
            print("%-10s %s ms per step" % ("beside top" if turn % 2 else "alone", shown(value)), flush=True)
            if value is not None:
                found[turn % 2 == 1].append(value)
    if not found[False] or not found[True]:
        print("no step was measured")
        return 1
    alone, beside = statistics.median(found[False]), statistics.median(found[True])
    percent = 100 * (beside / alone - 1)
    print("a step takes %.4g ms alone and %.4g ms beside brim top: %+.2f %%, %s" % (
        alone, beside, percent, "within 1 %" if abs(percent) <= 1 else "MORE than 1 %"))
    if args.output:
        with open(args.output, "w") as f:
            json.dump({"alone_ms": found[False], "beside_ms": found[True], "percent": percent}, f, indent=1)
            f.write("\n")
    return 0 if abs(percent) <= 1 else 1


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--brim", default="build/bin/brim")
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--seconds", type=float, default=9, help="length of the window")
    p.add_argument("--load", help="a command to run as load instead of a training")
    p.add_argument("--no-load", action="store_true", help="compare what runs already")
    p.add_argument("--impact", action="store_true", help="measure what top costs a training step instead")
    p.add_argument("--output", help="also write the report as JSON")
    p.add_argument("--keep", metavar="FOLDER", help="keep the programs' output here")
    for name in ("recording", "dmon", "gpm", "pmon"):
        p.add_argument("--" + name, help="saved output to compare")
    args = p.parse_args()
    args.brim = os.path.abspath(args.brim)
    if args.impact:
        return impact(args)
    report, share, once, query = Report(), None, "", {}
    began = time.time()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        names = ("recording", "dmon", "gpm", "pmon")
        files = {name: getattr(args, name) or os.path.join(folder, name) for name in names}
        if not args.recording:
            once, query, share = measure(args, folder)
        views = [v for v in (read_recording(files["recording"]) if os.path.exists(files["recording"]) else []) if v.get("gpus")]
        rows = {name: read_columns(files[name]) if os.path.exists(files[name]) else [] for name in names[1:]}
    print("%-6s %-42s %12s %12s %10s  %-9s %s" % ("source", "field", "brim", "nvidia-smi", "distance", "readings", ""))
    if not views or not rows["dmon"]:
        print("nothing to compare: %d readings of brim, %d of nvidia-smi dmon" % (len(views), len(rows["dmon"])))
        return 1
    for column, rule in DMON.items():
        compare(report, "dmon", column, rule, views, rows["dmon"], args.gpu, 1)
    for column, rule in GPM.items():
        compare(report, "gpm", column, rule, views, rows["gpm"], args.gpu, 2)
    compare_pmon(report, views, rows["pmon"], args.gpu)
    try:
        gpus = json.loads(once)["gpus"] if once else views[-1]["gpus"]
    except (ValueError, KeyError):
        print("brim top --once --json: not JSON: %s" % once[:200])
        report.bad, gpus = report.bad + 1, views[-1]["gpus"]
    gpu = [g for g in gpus if g["index"] == args.gpu and not g.get("slice")]
    if gpu and query:
        compare_query(report, gpu[0], query)
    if share is not None:
        report.add("cost", "share of a core, percent (at most 1)", share, None, None, "", share <= 1)
    costs = call_costs(args.gpu) if not args.recording else {}
    for name, cost in sorted(costs.items(), key=lambda item: -item[1]["cpu_us"]):
        print("call   %-42s %9.1f us, %9.1f us of a core%s" % (name, cost["wall_us"], cost["cpu_us"],
              ", answers %d" % cost["code"] if cost["code"] else ""))
    print("%d fields, %d disagree, %.0f s" % (len(report.rows), report.bad, time.time() - began))
    if args.output:
        with open(args.output, "w") as f:
            json.dump({"fields": report.rows, "disagree": report.bad, "top_core_percent": share, "calls": costs,
                       "gpu": gpu[0].get("name") if gpu else None, "driver": views[-1].get("driver")}, f, indent=1)
            f.write("\n")
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
