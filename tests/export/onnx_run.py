"""A small reader and interpreter of ONNX files, for tests: protobuf taken apart by hand, the operators
that brim writes in numpy, each as the specification of its opset has it. It is strict where onnx's
own checker is: names are unique, nodes come in order, attributes are known, shapes are as declared."""

import math
import struct

import numpy as np

FLOAT, UINT8, INT64 = 1, 2, 7
TYPES = {FLOAT: np.float32, UINT8: np.uint8, INT64: np.int64}


class Bad(Exception):
    """The file is not a valid model, or uses what this interpreter does not know."""


# ---------------------------------------------------------------- protobuf


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise Bad("a varint of more than 10 bytes")


def fields(data):
    """[(number, value)] of a message: ints, 4 or 8 bytes, or bytes."""
    at, out = 0, []
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        elif wire == 5:
            value, at = data[at : at + 4], at + 4
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            if len(value) != size:
                raise Bad(f"field {number} is cut short")
        else:
            raise Bad(f"wire type {wire}")
        out.append((number, value))
    return out


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def text(value):
    return bytes(value).decode("utf-8")


def known(pairs, numbers, what):
    for number, _ in pairs:
        if number not in numbers:
            raise Bad(f"{what} has no field {number}")


def one(pairs, number, default=None):
    found = [v for n, v in pairs if n == number]
    if len(found) > 1:
        raise Bad(f"field {number} is there {len(found)} times")
    return found[0] if found else default


def read_tensor(data):
    pairs = fields(data)
    known(pairs, {1, 2, 8, 9}, "TensorProto")
    dims = [signed(v) for n, v in pairs if n == 1]
    kind = TYPES[one(pairs, 2)]
    raw = bytes(one(pairs, 9, b""))
    count = int(np.prod(dims)) if dims else 1
    if len(raw) != count * np.dtype(kind).itemsize:
        raise Bad(f"tensor {text(one(pairs, 8))} has {len(raw)} bytes for {dims}")
    return text(one(pairs, 8)), np.frombuffer(raw, kind).reshape(dims)


def read_attribute(data):
    pairs = fields(data)
    known(pairs, {1, 2, 3, 8, 20}, "AttributeProto")
    kind = one(pairs, 20)
    if kind == 1:
        value = struct.unpack("<f", bytes(one(pairs, 2)))[0]
    elif kind == 2:
        value = signed(one(pairs, 3))
    elif kind == 7:
        value = [signed(v) for n, v in pairs if n == 8]
    else:
        raise Bad(f"attribute type {kind}")
    return text(one(pairs, 1)), value


def read_value(data):
    pairs = fields(data)
    known(pairs, {1, 2}, "ValueInfoProto")
    tensor = fields(one(fields(one(pairs, 2)), 1))
    shape = []
    for _, dim in fields(one(tensor, 2)):
        d = fields(dim)
        shape.append(text(one(d, 2)) if one(d, 2) is not None else signed(one(d, 1)))
    return text(one(pairs, 1)), TYPES[one(tensor, 1)], shape


class Node:
    def __init__(self, data):
        pairs = fields(data)
        known(pairs, {1, 2, 3, 4, 5}, "NodeProto")
        self.inputs = [text(v) for n, v in pairs if n == 1]
        self.outputs = [text(v) for n, v in pairs if n == 2]
        self.name = text(one(pairs, 3, b""))
        self.op = text(one(pairs, 4))
        self.attributes = dict(read_attribute(v) for n, v in pairs if n == 5)


class Model:
    def __init__(self, path):
        with open(path, "rb") as f:
            data = memoryview(f.read())
        pairs = fields(data)
        known(pairs, {1, 2, 3, 7, 8, 14}, "ModelProto")
        self.ir = one(pairs, 1)
        self.producer = text(one(pairs, 2))
        opset = fields(one(pairs, 8))
        if text(one(opset, 1, b"")) != "":
            raise Bad("the default operator set is not imported")
        self.opset = one(opset, 2)
        self.metadata = {}
        for number, value in pairs:
            if number == 14:
                entry = fields(value)
                self.metadata[text(one(entry, 1))] = text(one(entry, 2))
        graph = fields(one(pairs, 7))
        known(graph, {1, 2, 5, 11, 12}, "GraphProto")
        if not text(one(graph, 2)):
            raise Bad("the graph has no name")
        self.nodes = [Node(v) for n, v in graph if n == 1]
        self.weights = dict(read_tensor(v) for n, v in graph if n == 5)
        self.inputs = [read_value(v) for n, v in graph if n == 11]
        self.outputs = [read_value(v) for n, v in graph if n == 12]
        self.check(len([1 for n, _ in graph if n == 5]))

    def check(self, tensors):
        """The checks of onnx.checker: single assignment, order, versions."""
        least = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10}
        if self.ir != least[self.opset]:
            raise Bad(f"IR version {self.ir} for opset {self.opset}")
        if tensors != len(self.weights):
            raise Bad("two initialisers of one name")
        there = set(self.weights)
        for name, _, _ in self.inputs:
            if name in there:
                raise Bad(f"{name} is an input and a weight")
            there.add(name)
        names, used = set(), set()
        for node in self.nodes:
            if node.op not in OPS:
                raise Bad(f"unknown operator {node.op}")
            _, allowed, since = OPS[node.op]
            if self.opset < since:
                raise Bad(f"{node.op} is there from opset {since} on")
            for key in node.attributes:
                if key not in allowed:
                    raise Bad(f"{node.op} has no attribute {key}")
            if node.name in names:
                raise Bad(f"two nodes are called {node.name}")
            names.add(node.name)
            for name in node.inputs:
                if name not in there:
                    raise Bad(f"{node.name} reads {name}, which is not there yet")
            used.update(node.inputs)
            for name in node.outputs:
                if name in there:
                    raise Bad(f"{name} is written twice")
                there.add(name)
        for name, _, _ in self.outputs:
            if name not in there:
                raise Bad(f"the output {name} is nobody's")
        idle = set(self.weights) - used
        if idle:
            raise Bad(f"weights that nobody reads: {sorted(idle)[:3]}")

    def run(self, **inputs):
        values = dict(self.weights)
        sizes = {}
        for name, kind, shape in self.inputs:
            array = inputs[name]
            if array.dtype != kind:
                raise Bad(f"{name} takes {kind.__name__}, not {array.dtype}")
            match(name, shape, array, sizes)
            values[name] = array
        for node in self.nodes:
            run, _, _ = OPS[node.op]
            out = run(node.attributes, [values[i] for i in node.inputs], self.opset)
            if not isinstance(out, tuple):
                out = (out,)
            for name, value in zip(node.outputs, out):
                if value.dtype == np.float64:
                    value = value.astype(np.float32)
                values[name] = value
        for name, kind, shape in self.outputs:
            if values[name].dtype != kind:
                raise Bad(f"{name} is {values[name].dtype}")
            match(name, shape, values[name], sizes)
        return {name: values[name] for name, _, _ in self.outputs}


def match(name, shape, array, sizes):
    """Checks that an array has its declared shape; a letter is the same number everywhere."""
    if len(shape) != array.ndim:
        raise Bad(f"{name} has rank {array.ndim}, declared {shape}")
    for want, have in zip(shape, array.shape):
        want = sizes.setdefault(want, have) if isinstance(want, str) else want
        if want != have:
            raise Bad(f"{name} has shape {array.shape}, declared {shape}")


# ---------------------------------------------------------------- operators

ERF = np.vectorize(math.erf, otypes=[np.float64])


def cast(attributes, x, _):
    return x[0].astype(TYPES[attributes["to"]])


def binary(function):
    def run(_, x, __):
        if x[0].dtype != x[1].dtype:
            raise Bad(f"{x[0].dtype} with {x[1].dtype}")
        return function(x[0], x[1])

    return run


def reshape(_, x, __):
    shape = [int(v) for v in x[1]]
    return x[0].reshape([x[0].shape[i] if v == 0 else v for i, v in enumerate(shape)])


def conv(attributes, x, _):
    (a, w), (sy, sx) = x, attributes["strides"]
    top, left, bottom, right = attributes["pads"]
    if list(w.shape[2:]) != attributes["kernel_shape"]:
        raise Bad("kernel_shape is not that of the weight")
    a = np.pad(a.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    height = (a.shape[2] - w.shape[2]) // sy + 1
    width = (a.shape[3] - w.shape[3]) // sx + 1
    out = np.zeros((a.shape[0], w.shape[0], height, width))
    for r in range(w.shape[2]):
        for s in range(w.shape[3]):
            part = a[:, :, r : r + (height - 1) * sy + 1 : sy, s : s + (width - 1) * sx + 1 : sx]
            out += np.einsum("nchw,mc->nmhw", part, w[:, :, r, s].astype(np.float64))
    return out


def max_pool(attributes, x, _):
    (ky, kx), (sy, sx) = attributes["kernel_shape"], attributes["strides"]
    top, left, bottom, right = attributes["pads"]
    a = np.pad(x[0], ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-np.inf)
    height, width = (a.shape[2] - ky) // sy + 1, (a.shape[3] - kx) // sx + 1
    out = np.full(a.shape[:2] + (height, width), -np.inf, np.float32)
    for r in range(ky):
        for s in range(kx):
            part = a[:, :, r : r + (height - 1) * sy + 1 : sy, s : s + (width - 1) * sx + 1 : sx]
            out = np.maximum(out, part)
    return out


def batch_norm(attributes, x, _):
    a, scale, bias, mean, variance = (v.astype(np.float64) for v in x)
    side = (1, -1) + (1,) * (a.ndim - 2)
    spread = np.sqrt(variance + attributes.get("epsilon", 1e-5))
    return (a - mean.reshape(side)) / spread.reshape(side) * scale.reshape(side) + bias.reshape(side)


def layer_norm(attributes, x, _):
    if attributes.get("axis", -1) != -1:
        raise Bad("an axis that is not the last")
    a = x[0].astype(np.float64)
    a = a - a.mean(-1, keepdims=True)
    a /= np.sqrt((a * a).mean(-1, keepdims=True) + attributes.get("epsilon", 1e-5))
    return a * x[1] + x[2]


def gemm(attributes, x, _):
    b = x[1].T if attributes.get("transB", 0) else x[1]
    out = x[0].astype(np.float64) @ b.astype(np.float64)
    return out + x[2] if len(x) > 2 else out


def reduce_mean(attributes, x, opset):
    if opset < 18 and len(x) > 1:
        raise Bad("ReduceMean takes its axes as an input from opset 18 on")
    if opset >= 18 and "axes" in attributes:
        raise Bad("ReduceMean has no attribute axes from opset 18 on")
    axes = tuple(attributes["axes"]) if opset < 18 else tuple(int(v) for v in x[1])
    return x[0].astype(np.float64).mean(axes, keepdims=bool(attributes.get("keepdims", 1)))


def softmax(attributes, x, _):
    axis = attributes.get("axis", -1)
    e = np.exp(x[0].astype(np.float64) - x[0].max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def flatten(attributes, x, _):
    axis = attributes.get("axis", 1)
    return x[0].reshape(int(np.prod(x[0].shape[:axis])), -1)


# operator: function, its possible attributes, first opset with it (brim's lowest is 13)
OPS = {
    "Add": (binary(np.add), set(), 13),
    "BatchNormalization": (batch_norm, {"epsilon"}, 13),
    "Cast": (cast, {"to"}, 13),
    "Concat": (lambda a, x, o: np.concatenate(x, a["axis"]), {"axis"}, 13),
    "Conv": (conv, {"kernel_shape", "strides", "pads"}, 13),
    "Div": (binary(np.divide), set(), 13),
    "Erf": (lambda a, x, o: ERF(x[0]).astype(np.float32), set(), 13),
    "Flatten": (flatten, {"axis"}, 13),
    "Gather": (lambda a, x, o: np.take(x[0], x[1], a.get("axis", 0)), {"axis"}, 13),
    "Gemm": (gemm, {"transB"}, 13),
    "GlobalAveragePool": (
        lambda a, x, o: x[0].astype(np.float64).mean((2, 3), keepdims=True),
        set(),
        13,
    ),
    "Identity": (lambda a, x, o: x[0], set(), 13),
    "LayerNormalization": (layer_norm, {"axis", "epsilon"}, 17),
    "MatMul": (lambda a, x, o: x[0].astype(np.float64) @ x[1].astype(np.float64), set(), 13),
    "MaxPool": (max_pool, {"kernel_shape", "strides", "pads"}, 13),
    "Mul": (binary(np.multiply), set(), 13),
    "ReduceMean": (reduce_mean, {"axes", "keepdims"}, 13),
    "Relu": (lambda a, x, o: np.maximum(x[0], 0), set(), 13),
    "Reshape": (reshape, set(), 13),
    "Softmax": (softmax, {"axis"}, 13),
    "Sqrt": (lambda a, x, o: np.sqrt(x[0]), set(), 13),
    "Sub": (binary(np.subtract), set(), 13),
    "Tanh": (lambda a, x, o: np.tanh(x[0]), set(), 13),
    "Transpose": (lambda a, x, o: x[0].transpose(a["perm"]), {"perm"}, 13),
}
