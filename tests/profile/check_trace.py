"""Checks a trace file: the Chrome trace format in its object form, and the fields that Holistic Trace
Analysis reads. Prints one line per defect and exits 1.

check_trace.py FILE.json[.gz] [--kernels]   with --kernels the trace has to have kernels
check_trace.py --self-test FILE             plants defects into FILE; each has to be found
check_trace.py --from PROGRAM               checks what PROGRAM writes, plain and compressed, and plants"""

import collections
import copy
import gzip
import json
import math
import re
import subprocess
import sys

PHASES = {"X", "M", "C", "s", "f", "t", "i"}
GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
HOST = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "cuda_sync", "overhead"}
METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}
COPIES = ("Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP", "Memcpy Unknown")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
LANE = 100000  # tracks of one stream, where its work overlaps: tid = stream + n * LANE
EXACT = 2**53 / 1000  # most microseconds for which a double still resolves nanoseconds


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def nanoseconds(value):
    return round(value * 1000)


class Checker:
    def __init__(self, trace, kernels):
        self.trace = trace
        self.need_kernels = kernels
        self.defects = []
        self.slices = collections.defaultdict(list)  # (pid, tid) -> events
        self.named = set()
        self.flows = collections.defaultdict(dict)

    def say(self, text, event=None):
        self.defects.append(text + (": " + json.dumps(event)[:200] if event is not None else ""))

    def check(self):
        trace = self.trace
        if not isinstance(trace, dict):
            self.say("the file is no object")
            return self.defects
        if trace.get("displayTimeUnit") not in ("ms", "ns"):
            self.say("displayTimeUnit is neither ms nor ns")
        if not whole(trace.get("schemaVersion")):
            self.say("schemaVersion is no whole number")
        rank = trace.get("distributedInfo", {}).get("rank")
        if not whole(rank) or rank < 0:
            self.say("distributedInfo.rank is no whole number from 0")
        events = trace.get("traceEvents")
        if not isinstance(events, list) or not events:
            self.say("traceEvents is no list of events")
            return self.defects
        for event in events:
            self.check_event(event)
        for (pid, tid), slices in self.slices.items():
            self.check_track(pid, tid, slices)
        self.check_flows()
        self.check_correlations()
        self.check_steps()
        return self.defects

    #------------------------------ one event ------------------------------

    def check_event(self, e):
        if not isinstance(e, dict):
            return self.say("an event is no object", e)
        kind = e.get("ph")
        if kind not in PHASES:
            return self.say("ph is unknown", e)
        if not isinstance(e.get("name"), str) or not e["name"]:
            return self.say("an event has no name", e)
        if CONTROL.search(e["name"]):
            self.say("a name has a control character", e)
        if not whole(e.get("pid")):
            return self.say("pid is no whole number", e)
        if "args" in e and not isinstance(e["args"], dict):
            return self.say("args is no object", e)
        if kind == "M":
            return self.check_metadata(e)
        if not number(e.get("ts")) or e["ts"] < 0 or e["ts"] > EXACT:
            return self.say("ts is no time in microseconds from 0", e)
        if kind == "C":
            values = e.get("args") or {}
            if not values or not all(number(v) for v in values.values()):
                self.say("a counter has no numbers", e)
            return None
        if not whole(e.get("tid")):
            return self.say("tid is no whole number", e)
        if kind == "X":
            self.check_slice(e)
        elif kind == "i":
            if e.get("s") not in ("t", "p", "g"):
                self.say("an instant has no scope", e)
        else:
            key = (e.get("cat"), e["name"], e.get("id"))
            if None in key:
                return self.say("a flow has no cat or id", e)
            if kind in self.flows[key]:
                self.say("a flow has two ends of one kind", e)
            self.flows[key][kind] = e
        return None

    def check_metadata(self, e):
        if e["name"] not in METADATA:
            return self.say("metadata of an unknown name", e)
        key, kind = METADATA[e["name"]]
        if not isinstance((e.get("args") or {}).get(key), kind):
            self.say("metadata without its value", e)
        if e["name"] == "process_name":
            self.named.add((e["pid"], None))
        if e["name"] == "thread_name":
            self.named.add((e["pid"], e.get("tid")))
        return None

    def check_slice(self, e):
        if not number(e.get("dur")) or e["dur"] < 0:
            return self.say("dur is no duration in microseconds", e)
        category, args = e.get("cat"), e.get("args") or {}
        if category not in GPU | HOST:
            return self.say("cat is none that HTA reads", e)
        self.slices[e["pid"], e["tid"]].append(e)
        if category in GPU:
            if not whole(args.get("stream")) or args["stream"] != e["tid"] % LANE:
                self.say("args.stream is not the track's", e)
            if not whole(args.get("correlation")) or args["correlation"] < 0:
                self.say("work of a GPU without args.correlation", e)
            if args.get("device") != e["pid"]:
                self.say("args.device is not the process's", e)
        if category in ("cuda_runtime", "cuda_driver", "cuda_sync") and not whole(args.get("correlation")):
            self.say("a call without args.correlation", e)
        if category == "gpu_memcpy" and not e["name"].startswith(COPIES):
            self.say("the name of a copy does not tell its direction", e)
        if category == "gpu_memset" and not e["name"].startswith("Memset"):
            self.say("the name of a memset does not begin with Memset", e)
        if category in ("gpu_memcpy", "gpu_memset") and not (whole(args.get("bytes")) and args["bytes"] >= 0):
            self.say("a copy or memset without args.bytes", e)
        return None

    #------------------------------ several ------------------------------

    def check_track(self, pid, tid, slices):
        if (pid, None) not in self.named:
            self.say("process %d has no name" % pid)
        if (pid, tid) not in self.named:
            self.say("track %d of process %d has no name" % (tid, pid))
        open_ends = []
        spans = sorted((nanoseconds(e["ts"]), -nanoseconds(e["dur"]), i) for i, e in enumerate(slices))
        for start, length, i in spans:
            end = start - length
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and end > open_ends[-1]:
                self.say("slices of a track overlap without nesting", slices[i])
            open_ends.append(end)

    def inside(self, e):
        at = nanoseconds(e["ts"])
        return any(
            nanoseconds(s["ts"]) <= at <= nanoseconds(s["ts"]) + nanoseconds(s["dur"])
            for s in self.slices[e["pid"], e["tid"]]
        )

    def check_flows(self):
        for key, ends in self.flows.items():
            if "s" not in ends or "f" not in ends:
                self.say("a flow has one end only: %s" % (key,))
                continue
            if ends["f"].get("bp") != "e":
                self.say("a flow ends at the next slice, not at the enclosing one", ends["f"])
            if ends["s"]["ts"] > ends["f"]["ts"]:
                self.say("a flow goes back in time", ends["f"])
            for end in (ends["s"], ends["f"]):
                if not self.inside(end):
                    self.say("a flow's end lies in no slice", end)

    def check_correlations(self):
        of_gpu, of_calls = set(), set()
        for slices in self.slices.values():
            for e in slices:
                correlation = (e.get("args") or {}).get("correlation")
                if e["cat"] in GPU:
                    of_gpu.add(correlation)
                elif e["cat"] in ("cuda_runtime", "cuda_driver"):
                    of_calls.add(correlation)
        kernels = sum(e["cat"] == "kernel" for s in self.slices.values() for e in s)
        if self.need_kernels and not kernels:
            self.say("there is no kernel")
        # Every call that launched work is in the trace, or none is.
        if of_calls and of_gpu - of_calls - {0}:
            self.say("work of a GPU whose call is not in the trace: %s" % sorted(of_gpu - of_calls)[:5])

    def check_steps(self):
        steps = []
        for slices in self.slices.values():
            for e in slices:
                found = re.fullmatch(r"ProfilerStep#(\d+)", e["name"])
                if found and e["cat"] == "user_annotation":
                    steps.append((e["ts"], int(found.group(1))))
        numbers = [n for _, n in sorted(steps)]
        if not numbers:
            self.say("there is no annotation ProfilerStep#N")
        elif numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            self.say("steps are not numbered one after the other")


def load(path):
    opener = gzip.open if path.endswith(".gz") else open

    def no_constant(text):
        raise ValueError("%s is not JSON" % text)

    with opener(path, "rb") as f:
        return json.loads(f.read().decode("utf-8"), parse_constant=no_constant)


#------------------------------ planted defects ------------------------------


def plants(trace):
    """(name, changed trace) for every defect that this trace can have."""

    def planted(name, change, chooser=None):
        other = copy.deepcopy(trace)
        if chooser is None:
            change(other)
            return name, other
        for e in other["traceEvents"]:
            if chooser(e):
                change(other, e)
                return name, other
        return None

    def is_x(e):
        return e["ph"] == "X"

    def of(category):
        return lambda e: e.get("cat") == category and e["ph"] == "X"

    def drop(t, e):
        t["traceEvents"].remove(e)

    def overlap(t, e):
        long = dict(e, dur=max(e["dur"], 0.002), name="across")
        t["traceEvents"].append(dict(long, ts=e["ts"] + long["dur"] / 2))
        e["dur"] = long["dur"]

    rows = [
        planted("a list", lambda t: t.update(traceEvents={})),
        planted("no rank", lambda t: t.pop("distributedInfo")),
        planted("no unit", lambda t: t.pop("displayTimeUnit")),
        planted("unknown ph", lambda t, e: e.update(ph="Q"), is_x),
        planted("ts as text", lambda t, e: e.update(ts=str(e["ts"])), is_x),
        planted("negative dur", lambda t, e: e.update(dur=-1.0), is_x),
        planted("no dur", lambda t, e: e.pop("dur"), is_x),
        planted("ts in nanoseconds since 1970", lambda t, e: e.update(ts=1.7e18), is_x),
        planted("control character", lambda t, e: e.update(name="a\nb"), is_x),
        planted("unknown category", lambda t, e: e.update(cat="gpu"), is_x),
        planted("no pid", lambda t, e: e.pop("pid"), is_x),
        planted("overlap", overlap, is_x),
        planted("no process name", drop, lambda e: e["name"] == "process_name"),
        planted("no track name", drop, lambda e: e["name"] == "thread_name"),
        planted("steps skip one", lambda t, e: e.update(name="ProfilerStep#999999"),
                lambda e: e["name"].startswith("ProfilerStep#")),
        planted("counter of words", lambda t, e: e.update(args={"bytes": "many"}), lambda e: e["ph"] == "C"),
        planted("a kernel's stream", lambda t, e: e["args"].update(stream=-1), of("kernel")),
        planted("a kernel's correlation", lambda t, e: e["args"].pop("correlation"), of("kernel")),
        planted("another call", lambda t, e: e["args"].update(correlation=987654321), of("kernel")),
        planted("a copy's name", lambda t, e: e.update(name="copy"), of("gpu_memcpy")),
        planted("a copy's bytes", lambda t, e: e["args"].pop("bytes"), of("gpu_memcpy")),
        planted("a memset's name", lambda t, e: e.update(name="clear"), of("gpu_memset")),
        planted("a flow without an end", drop, lambda e: e["ph"] == "f"),
        planted("a flow to the next", lambda t, e: e.pop("bp"), lambda e: e["ph"] == "f"),
        planted("a flow beside", lambda t, e: e.update(ts=e["ts"] + 1e9), lambda e: e["ph"] == "f"),
        planted("a flow back in time", lambda t, e: e.update(ts=0), lambda e: e["ph"] == "f" and e["ts"] > 0),
    ]
    return [row for row in rows if row]


def self_test(path):
    trace = load(path)
    missed = [n for n, other in plants(trace) if not Checker(other, False).check()]
    for name in missed:
        print("not found: " + name)
    print("%d defects planted, %d not found" % (len(plants(trace)), len(missed)))
    return missed


def check_program(program):
    """Checks that both forms of a program's trace are the same, without defects, and that each plant is found in it."""
    for name in ("check.json", "check.json.gz"):
        subprocess.run([program, name], check=True)
    defects = Checker(load("check.json"), True).check()
    if load("check.json") != load("check.json.gz"):
        defects.append("the compressed file differs from the plain one")
    for line in defects:
        print(line)
    return defects or self_test("check.json")


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    if len(words) != 1:
        sys.exit(__doc__)
    if "--from" in sys.argv:
        sys.exit(1 if check_program(words[0]) else 0)
    defects = Checker(load(words[0]), "--kernels" in sys.argv).check()
    for line in defects[:50]:
        print(line)
    if not defects and "--self-test" in sys.argv:
        defects = self_test(words[0])
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()
