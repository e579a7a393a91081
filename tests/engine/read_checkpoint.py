"""Reads a checkpoint with nothing but json and struct, as its specification says, and holds it
against what the writer printed. read_checkpoint.py PROGRAM"""

import json
import struct
import subprocess
import sys

SIZES = {"F32": 4, "F64": 8, "I64": 8}
path = "python.safetensors"
said = subprocess.run([sys.argv[1], path], check=True, stdout=subprocess.PIPE, text=True).stdout

with open(path, "rb") as f:
    blob = f.read()
(length,) = struct.unpack("<Q", blob[:8])
assert length % 8 == 0, length
header = json.loads(blob[8 : 8 + length])
data = blob[8 + length :]
meta = header.pop("__metadata__")
assert meta["step"] == "4" and all(isinstance(v, str) for v in meta.values()), meta

end = 0
for name, e in header.items():  # in the order of the file: no hole, no overlap
    begin, stop = e["data_offsets"]
    count = 1
    for d in e["shape"]:
        count *= d
    assert begin == end and stop - begin == count * SIZES[e["dtype"]], name
    assert begin % SIZES[e["dtype"]] == 0, name
    end = stop
assert end == len(data), (end, len(data))

lines = [line for line in said.splitlines() if " = " in line]
for line in lines:
    left, right = line.split(" = ")
    name, *shape = left.split()
    e = header[name]
    assert e["shape"] == [int(d) for d in shape], line
    begin, stop = e["data_offsets"]
    values = struct.unpack("<%df" % ((stop - begin) // 4), data[begin:stop])
    first, last = (float(x) for x in right.split())
    assert abs(values[0] - first) <= 1e-6 * abs(first), (line, values[0])
    assert abs(values[-1] - last) <= 1e-6 * abs(last), (line, values[-1])
    for prefix in ("optimizer.m.", "optimizer.v."):
        assert header[prefix + name]["shape"] == e["shape"], name
state = header["optimizer.state"]
assert state["dtype"] == "F64" and state["shape"] == [3], state
assert len(lines) == 10 and len(header) == 3 * len(lines) + 1, (len(lines), len(header))
print("read %d tensors" % len(header))
