"""Reads event files with nothing but struct, as the formats of TFRecord and protobuf say, and holds
them against what the writer printed. Then, where TensorBoard is installed and works, its reader has
to find in them what it finds in its own files of the same scalars.
read_events.py PROGRAM"""

import os
import shutil
import struct
import subprocess
import sys


def crc32c(data):  # bit by bit, as Castagnoli's polynomial is defined
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def records(blob):
    at = 0
    while at < len(blob):
        (n, check) = struct.unpack_from("<QI", blob, at)
        assert check == masked(blob[at : at + 8]), "length at %d" % at
        data = blob[at + 12 : at + 12 + n]
        assert len(data) == n, "torn at %d" % at
        (check,) = struct.unpack_from("<I", blob, at + 12 + n)
        assert check == masked(data), "data at %d" % at
        at += n + 16
        yield data


def fields(data):
    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at

    at = 0
    while at < len(data):
        tag, at = varint(at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(at)
        elif kind == 1:
            value, at = data[at : at + 8], at + 8
        elif kind == 5:
            value, at = data[at : at + 4], at + 4
        else:
            n, at = varint(at)
            value, at = data[at : at + n], at + n
        yield tag >> 3, value


folder = "events"
shutil.rmtree(folder, ignore_errors=True)
os.mkdir(folder)
said = subprocess.run([sys.argv[1], folder], check=True, stdout=subprocess.PIPE, text=True).stdout

found = []
files = []  # for each, its scalars: tag, step, time, value
for name in sorted(os.listdir(folder)):
    assert "tfevents" in name, name
    with open(os.path.join(folder, name), "rb") as f:
        events = [list(fields(r)) for r in records(f.read())]
    assert dict(events[0])[3] == b"brain.Event:2", name
    files.append([])
    for event in events[1:]:
        e = dict(event)
        assert struct.unpack("<d", e[1])[0] > 1.6e9
        if 5 not in e:
            continue
        value = dict(fields(dict(fields(e[5]))[1]))
        number = struct.unpack("<f", value[2])[0]
        found.append("%s %d %.6g" % (value[1].decode(), e.get(2, 0), number))
        files[-1].append((value[1].decode(), e.get(2, 0), struct.unpack("<d", e[1])[0], number))
assert "\n".join(found) + "\n" == said, (found, said)



def by_tensorboard(folder):
    """The scalars that TensorBoard's reader finds in a folder, in the writer's format."""
    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0})
    accumulator.Reload()
    seen = []
    for tag in accumulator.Tags()["scalars"]:
        seen += ["%s %d %.6g" % (tag, s.step, s.value) for s in accumulator.Scalars(tag)]
    return sorted(seen)


def write_control(folder):
    """Writes the same scalars with TensorBoard's own writer, file for file."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for number, scalars in enumerate(files):
        writer = EventFileWriter(folder, filename_suffix=".%d" % number)
        for tag, step, time, value in scalars:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(Event(wall_time=time, step=step, summary=summary))
        writer.close()


# Versions differ in the modules they install, need and keep. If this one cannot read its own files, that is not brim's
# fault; but if it can, it must read brim's files too.
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    write_control("control")
    control = by_tensorboard("control")
except ImportError:
    print("skipped: the Python package tensorboard is not installed")
    sys.exit(0)
except Exception as error:  # noqa: BLE001: any failure of an installation that is not ours
    print("skipped: TensorBoard cannot read its own files here: %s" % type(error).__name__)
    sys.exit(0)
if not control:
    print("skipped: this TensorBoard's reader finds no scalars in its own files")
    sys.exit(0)
seen = by_tensorboard(folder)
assert seen == control, (seen, control)
