"""safetensors files with nothing but json and struct, as their specification says: 8 bytes of header
length, a JSON header, the values."""
import json, struct

import torch

TYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}
NAMES = {t: n for n, t in TYPES.items()}


def save(path, tensors):
    header, blobs, at = {}, [], 0
    for name, t in tensors.items():
        blob = t.detach().cpu().contiguous().numpy().tobytes()
        header[name] = dict(dtype=NAMES[t.dtype], shape=list(t.shape), data_offsets=[at, at + len(blob)])
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            f.write(blob)


def load(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), bytearray(f.read())
    header.pop("__metadata__", None)
    out = {}
    for name, e in header.items():
        begin, end = e["data_offsets"]
        flat = torch.frombuffer(data[begin:end], dtype=TYPES[e["dtype"]]).clone()
        out[name] = flat.reshape(e["shape"])
    return out
