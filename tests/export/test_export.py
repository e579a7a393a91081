#!/usr/bin/env python3
"""`brim export` against `brim predict`: a small instance of every model is trained for a few steps,
exported, and run by another program on the same samples: by onnx_run.py, and by onnxruntime and
onnx.checker where they are here. `test_export.py BRIM [MODEL]`; exit 77: left out, with the reason."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not here (Debian: python3-numpy)")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_run  # noqa: E402

TOLERANCE = 1e-4
BRIM = os.path.abspath(sys.argv[1])
ROWS, TRAIN = 12, 40
OPSETS = ("13", "17", "18", "21")
FULL = "BRIM_TEST_FULL" in os.environ
DRAW = random.Random(int(os.environ.get("BRIM_TEST_SEED", "1")))

# model, its training data, more arguments for train
CASES = [
    ("linear", "digits", []),
    ("linear(bias=false)", "digits", []),
    ("mlp(depth=2, hidden=24, norm=layer, activation=gelu, dropout=0.1)", "colour", []),
    ("mlp(depth=1, hidden=16, activation=tanh)", "numbers", []),
    ("resmlp(depth=2, hidden=16)", "signal", []),
    ("transformer(depth=2, hidden=32, heads=4, patch=4)", "signal", []),
    ("transformer(depth=1, hidden=24, heads=1, patch=8, dropout=0.2)", "signal", []),
    ("resnet18(width=4)", "colour", []),
    ("resnet18(width=4, stem=imagenet)", "digits", []),
    ("resnet34(width=2)", "colour", ["transform=normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))"]),
    ("resnet50(width=2)", "colour", []),
    ("wideresnet(depth=10, width=1, dropout=0.1)", "colour", []),
    ("linear_policy", "numbers", []),
    ("mlp_policy(depth=2, hidden=16)", "numbers", []),
    ("actor_critic(hidden=16)", "numbers", []),
    ("actor_critic(hidden=16, shared=true)", "numbers", []),
]
SIMCLR = "simclr(backbone=resnet18(width=4), hidden=16, dim=8)"


def sample(cases, count):
    """This many of them, chosen by the seed; all of them with BRIM_TEST_FULL."""
    return cases if FULL else DRAW.sample(cases, count)


def brim(*words):
    done = subprocess.run([BRIM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"brim {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---------------------------------------------------------------- data


def idx(path, array):
    kinds = {np.dtype(np.uint8): 0x08, np.dtype(np.float32): 0x0D, np.dtype(np.int32): 0x0C}
    with open(path, "wb") as f:
        f.write(struct.pack(">BBBB", 0, 0, kinds[array.dtype], array.ndim))
        f.write(struct.pack(f">{array.ndim}I", *array.shape))
        f.write(array.astype(array.dtype.newbyteorder(">")).tobytes())


def write_idx(folder, inputs, targets):
    os.makedirs(folder)
    for part, (a, b) in {"train": (ROWS, None), "t10k": (0, ROWS)}.items():
        idx(f"{folder}/{part}-images-idx3-ubyte", inputs[a:b])
        idx(f"{folder}/{part}-labels-idx1-ubyte", targets[a:b])


def write_cifar(folder, pixels, labels):
    """CIFAR-10's files: a label, then three planes of 32 x 32."""
    os.makedirs(folder)
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    records = np.concatenate([labels.astype(np.uint8)[:, None], planes], axis=1)
    records[:ROWS].tofile(f"{folder}/test_batch.bin")
    for i, part in enumerate(np.array_split(records[ROWS:], 5)):
        part.tofile(f"{folder}/data_batch_{i + 1}.bin")


def make_data():
    """Samples of four kinds as brim reads them; the first ROWS are the test set."""
    values = np.random.default_rng(7)
    count = ROWS + TRAIN
    labels = values.integers(0, 10, count).astype(np.uint8)
    labels[ROWS : ROWS + 10] = np.arange(10)
    digits = values.integers(0, 256, (count, 28, 28)).astype(np.uint8)
    colour = values.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    signal = values.standard_normal((count, 32, 2)).astype(np.float32)
    targets = values.standard_normal((count, 3)).astype(np.float32)
    write_idx("digits", digits, labels)
    write_cifar("colour", colour, labels)
    write_idx("signal", signal, labels)
    write_idx("numbers", signal, targets)
    return {"digits": digits, "colour": colour, "signal": signal, "numbers": signal}


# ---------------------------------------------------------------- one model


def rows_of(path, key):
    with open(path, encoding="utf-8") as f:
        return np.array([json.loads(line)[key] for line in f], np.float32)


def others(path, inputs):
    """Runs the model with onnxruntime and onnx.checker, if they are here."""
    try:
        import onnx

        onnx.checker.check_model(onnx.load(path), full_check=True)
    except ImportError:
        pass
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs)))


def compare(what, have, want):
    if have.shape != want.shape:
        sys.exit(f"{what}: shape {have.shape}, brim has {want.shape}")
    gap = np.abs(have - want) / np.maximum(1, np.abs(want))
    if not np.isfinite(have).all() or gap.max() > TOLERANCE:
        sys.exit(f"{what}: differs from brim by {gap.max():.3g}, allowed {TOLERANCE:g}")
    return gap.max()


def feed(samples, metadata, normalize, nhwc):
    """Prepares samples as docs/using-a-model.md tells a caller to."""
    x = samples
    if not normalize:
        scale, shift = (np.array(json.loads(metadata[k]), np.float32) for k in ("scale", "shift"))
        x = x.astype(np.float32) * scale + shift
    if x.ndim == 4 and not nhwc:
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)


def export(run, words, samples, wanted, **how):
    path = "model.onnx"
    brim("export", f"{run}/last.safetensors", "--force", "--output", path, *words)
    model = onnx_run.Model(path)
    x = feed(samples, model.metadata, how.get("normalize", True), how.get("nhwc", False))
    worst = 0
    results = [("onnx_run", model.run(input=x))]
    with_runtime = others(path, {"input": x})
    if with_runtime:
        results.append(("onnxruntime", with_runtime))
    for who, out in results:
        for name, want in wanted.items():
            worst = max(worst, compare(f"{run} {' '.join(words)}: {name} by {who}", out[name], want))
    return model, results[0][1], worst


def check(number, case, data):
    model, kind, words = case
    run = f"run{number}"
    brim("train", f"model={model}", "--data-path", kind, "--output-dir", run, "--batch-size", "8",
         "--max-steps", "6", "--lr", "0.02", "--seed", str(number), "-q", *words)
    more = ["--logits"] if kind != "numbers" else []
    brim("predict", f"{run}/last.safetensors", "--data-path", kind, "--split", "test", "--force", "--output",
         "rows.jsonl", *more)
    key, name = ("values", "output") if kind == "numbers" else ("logits", "logits")
    wanted = {name: rows_of("rows.jsonl", key)}
    samples = data[kind][:ROWS]
    worst = 0
    ways = [(["--batch", str(ROWS)], {}), (["--normalize", "no"], {"normalize": False})]
    if kind == "colour":
        ways.append((["--layout", "nhwc"], {"nhwc": True}))
    for words, how in sample([(["--opset", opset], {}) for opset in OPSETS], 1) + sample(ways, 1):
        worst = max(worst, export(run, words, samples, wanted, **how)[2])
    print(f"{model}: within {worst:.2g}", flush=True)


def check_simclr(data, norm, depth):
    """Checks both outputs; the projection must equal brim's own projector on the features."""
    run = ("simclr_norm" if norm else "simclr") + (f"_{depth}" if depth > 1 else "")
    brim("train", f"model={SIMCLR[:-1]}, batch_norm={str(norm).lower()}, depth={depth})", "transform=views | random_crop(size=32, padding=2)",
         "workload=contrastive", "--data-path", "colour", "--output-dir", run, "--batch-size", "8",
         "--max-steps", "4", "-q")
    words = ["--data-path", "colour", "--split", "test", "--force", "--output", "rows.jsonl"]
    brim("predict", f"{run}/last.safetensors", *words)
    wanted = {"projection": rows_of("rows.jsonl", "embedding")}
    brim("predict", f"{run}/last.safetensors", "--features", *words)
    wanted["features"] = rows_of("rows.jsonl", "features")
    model, out, worst = export(run, [], data["colour"][:ROWS], wanted)
    if out["features"].shape != (ROWS, 32):
        sys.exit(f"simclr: features of shape {out['features'].shape}")
    w = model.weights
    hidden, place = out["features"], 0
    for _ in range(depth):
        hidden = hidden @ w[f"projector.{place}.weight"].T
        if norm:
            place += 1
            bn = {k: w[f"projector.{place}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")}
            hidden = (hidden - bn["running_mean"]) / np.sqrt(bn["running_var"] + 1e-5) * bn["weight"] + bn["bias"]
        else:
            hidden = hidden + w[f"projector.{place}.bias"]
        hidden, place = np.maximum(hidden, 0), place + 2
    again = hidden @ w[f"projector.{place}.weight"].T + w[f"projector.{place}.bias"]
    compare(f"{run}: projection of the features", again.astype(np.float32), out["projection"])
    print(f"{run}: within {worst:.2g}", flush=True)


def main():
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    shutil.rmtree("export", ignore_errors=True)
    os.makedirs("export")
    os.chdir("export")
    data = make_data()
    cases = [(number, case) for number, case in enumerate(CASES) if only in case[0]]
    for number, case in cases if only else sample(cases, len(cases) // 2):
        check(number, case, data)
    if only in SIMCLR:
        for norm, depth in sample([(False, 1), (True, 2)], 1):
            check_simclr(data, norm, depth)
    for name in ("onnx", "onnxruntime"):
        try:
            __import__(name)
        except ImportError:
            print(f"{name} is not here: compared by onnx_run.py alone")


main()
