#!/usr/bin/env python3
"""One GPU seen from outside and, as a program, a process that holds its memory. NVML and the driver are
called directly: no PyTorch, and no CUDA context where only figures are read.

  gpu.py --leave 2GiB                     take all but 2 GiB, say so, keep it until the input ends
  gpu.py --leave 64MiB --come 200MiB --after 50   first wait until someone else has taken 200 MiB, then 50 ms
"""
import argparse, ctypes, os, re, select, subprocess, sys, time

MIB = 1 << 20
UNKNOWN = (1 << 64) - 1


class Memory2(ctypes.Structure):  # nvmlMemory_v2_t
    _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):  # nvmlProcessInfo_t of the _v3 calls
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Gpu:
    """Figures of NVML: of the whole GPU, whichever process holds it."""

    def __init__(self, index=0):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(self.handle))

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            raise OSError("%s failed with %d" % (name, code))

    def free(self):
        m = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
        self.call("nvmlDeviceGetMemoryInfo_v2", self.handle, ctypes.byref(m))
        return m.free

    def processes(self):
        """{pid: bytes or None} of the computing processes; empty if NVML does not list them, as in some containers."""
        count = ctypes.c_uint(256)
        rows = (Process * 256)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", self.handle, ctypes.byref(count), rows)
        except (OSError, AttributeError):
            return {}
        return {r.pid: None if r.used == UNKNOWN else r.used for r in rows[:count.value]}

    def settle(self, limit=5.0):
        """Free memory once it has not changed for a moment, because a process that ended frees its memory late."""
        end, last, same = time.monotonic() + limit, self.free(), 0
        while same < 4 and time.monotonic() < end:
            time.sleep(0.03)
            now = self.free()
            same = same + 1 if now == last else 0
            last = now
        return last


def open_gpu(index):
    try:
        return Gpu(index)
    except OSError as e:
        sys.exit("no GPU can be read: %s" % e)


class Holder:
    """gpu.py as a child; `with` gives the memory back."""

    def __init__(self, *args, limit=20):
        self.child = subprocess.Popen([sys.executable, os.path.abspath(__file__), *args], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.child.pid
        self.line(limit)

    def line(self, limit):
        """The holder's next line; None if there is none in time."""
        if not select.select([self.child.stdout], [], [], limit)[0]:
            return None
        return self.child.stdout.readline().strip() or None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.child.stdin.close()
            self.child.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.child.kill()
            self.child.wait()


# ---------------------------------- the holder itself ----------------------------------


def size(text):
    m = re.fullmatch(r"(\d+(?:\.\d+)?)(MiB|GiB)", text)
    if not m:
        raise argparse.ArgumentTypeError("'%s' is no size such as 2GiB" % text)
    return int(float(m[1]) * (MIB if m[2] == "MiB" else 1 << 30))


class Driver:
    def __init__(self, index):
        self.lib = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.must("cuInit", ctypes.c_uint(0))
        self.must("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.must("cuCtxSetCurrent", context)

    def must(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            raise OSError("%s failed with %d" % (name, code))

    def free(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def take(self, leave):
        """Allocates all memory but `leave`, in the largest possible pieces; returns the bytes."""
        taken, piece = 0, 1 << 40
        while piece >= 2 * MIB:
            want = min(piece, self.free() - leave) // (2 * MIB) * (2 * MIB)
            if want < 2 * MIB:
                break
            address = ctypes.c_ulonglong()
            if self.lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(want)) == 0:
                taken += want
            else:
                piece = want // 2
        return taken


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--leave", type=size, required=True, help="memory that stays free, such as 2GiB")
    p.add_argument("--first", type=size, help="with --come: leave so much until then")
    p.add_argument("--come", type=size, help="wait until others have taken so much")
    p.add_argument("--after", type=float, default=0, help="ms after that")
    a = p.parse_args()
    d = Driver(a.gpu)
    if a.come is None:
        print("holds %d" % d.take(a.leave), flush=True)
    else:
        if a.first is not None:
            d.take(a.first)
        before = d.free()
        print("waits", flush=True)
        while before - d.free() < a.come:
            if select.select([sys.stdin], [], [], 0.0005)[0]:
                return 0
        time.sleep(a.after / 1e3)
        print("holds %d" % d.take(a.leave), flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
