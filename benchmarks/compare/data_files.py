"""Files that the data comparisons read, made by numpy and h5py. A file that is there with the right
shape is kept. What is in them is described here, since how well it packs decides what unpacking costs."""
import os

import h5py, numpy as np

ROWS_PER_WRITE = 4096


def kept(path, name, shape, chunks=None):
    try:
        with h5py.File(path, "r") as f:
            return f[name].shape == shape and f[name].chunks == chunks and bool(f.attrs.get("complete"))
    except (OSError, KeyError):
        return False


def random_signals(rng, rows, sample):
    return rng.standard_normal((rows,) + sample, dtype=np.float32)


def smooth_signals(rng, rows, sample):
    """Signals like an instrument's: three sines of random frequency (1 to 20 periods a row), phase and amplitude, noise
    of 1/200 of full scale, quantised to 12 bits and stored as float32 in [-1, 1)."""
    n = int(np.prod(sample))
    t = np.linspace(0, 2 * np.pi, n, endpoint=False, dtype=np.float32)
    x = np.zeros((rows, n), np.float32)
    for _ in range(3):
        f, p, g = (rng.uniform(lo, hi, (rows, 1)).astype(np.float32) for lo, hi in ((1, 20), (0, 2 * np.pi), (0.1, 0.3)))
        x += g * np.sin(f * t + p)
    x += rng.standard_normal((rows, n), dtype=np.float32) / 200
    return (np.clip(np.round(x * 2048), -2048, 2047) / 2048).astype(np.float32).reshape((rows,) + sample)


def make_hdf5(path, rows, sample, signals, chunk_rows=0, deflate=0, targets=4):
    """x (rows, *sample) float32 and y (rows, targets) float32."""
    shape, chunks = (rows,) + tuple(sample), (chunk_rows,) + tuple(sample) if chunk_rows else None
    if kept(path, "x", shape, chunks):
        return
    rng = np.random.default_rng(1)
    how = dict(chunks=chunks, compression="gzip", compression_opts=deflate) if deflate else dict(chunks=chunks)
    with h5py.File(path, "w") as f:
        x = f.create_dataset("x", shape, "f4", **how)
        y = f.create_dataset("y", (rows, targets), "f4")
        for i in range(0, rows, ROWS_PER_WRITE):
            n = min(ROWS_PER_WRITE, rows - i)
            x[i:i + n] = signals(rng, n, tuple(sample))
            y[i:i + n] = rng.standard_normal((n, targets), dtype=np.float32)
        f.attrs["complete"] = True


def stored_share(path):
    """Stored bytes of x, divided by its bytes."""
    with h5py.File(path, "r") as f:
        return f["x"].id.get_storage_size() / (f["x"].size * f["x"].dtype.itemsize)


def make_stl10(folder, images, size=96):
    """unlabeled_X.bin in STL-10's format: uint8, planes R, G, B, each column by column. Smooth images: a random 8 x 8
    grid of colours, enlarged bilinearly, with noise of a few levels (of 512 kinds)."""
    path = os.path.join(folder, "unlabeled_X.bin")
    bytes_each = 3 * size * size
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(path) and os.path.getsize(path) == images * bytes_each:
        return
    rng = np.random.default_rng(1)
    at = np.linspace(0, 6.999, size)
    low, share = at.astype(int), (at - at.astype(int)).astype(np.float32)
    weight = np.zeros((size, 8), np.float32)
    weight[np.arange(size), low] = 1 - share
    weight[np.arange(size), low + 1] += share
    noise = rng.uniform(-6, 6, (512, 3, size, size)).astype(np.float32)
    with open(path, "wb") as f:
        for i in range(0, images, 512):
            n = min(512, images - i)
            grid = rng.uniform(0, 255, (n, 3, 8, 8)).astype(np.float32)
            x = weight @ grid @ weight.T + noise[:n]
            f.write(np.clip(x, 0, 255).astype(np.uint8).tobytes())


def warm(path):
    """Reads a file, or all files of a folder, into the page cache. Returns the number of bytes."""
    total = 0
    files = [path] if os.path.isfile(path) else [os.path.join(d, n) for d, _, names in os.walk(path) for n in names]
    for name in files:
        with open(name, "rb", buffering=0) as f:
            while True:
                part = f.read(1 << 22)
                if not part:
                    break
                total += len(part)
    return total
