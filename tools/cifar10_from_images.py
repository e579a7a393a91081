#!/usr/bin/env python3
"""CIFAR-10's binary files from images: IMAGES is a folder or a tar (also .gz, .xz) that holds
train/<class>/<name>.jpg|png and test/<class>/<name>; OUT becomes the folder for `--data-path`.

    tools/cifar10_from_images.py cifar10-images.tar.xz data/cifar10

The classes are numbered by name, which for CIFAR-10's own ten is their usual order. Images have to be
32 x 32. The training images are spread over data_batch_1.bin to data_batch_5.bin, class by class in
turn, so that every file holds about the same of each. Needs Pillow. Existing files are replaced, each
one whole."""

import argparse
import io
import os
import sys
import tarfile

SIDE = 32
SUFFIXES = (".jpg", ".jpeg", ".png")
CLASSES = 10


def fail(text):
    sys.exit("cifar10_from_images: " + text)


def split_of(path):
    """(split, class, name) of .../train/cat/0000.jpg, or None for what is no image."""
    parts = path.replace(os.sep, "/").strip("/").split("/")
    if len(parts) < 3 or not parts[-1].lower().endswith(SUFFIXES) or parts[-1].startswith("."):
        return None
    if parts[-3] not in ("train", "test"):
        return None
    return parts[-3], parts[-2], parts[-1]


def from_folder(root):
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            place = split_of(os.path.relpath(path, root))
            if place:
                with open(path, "rb") as file:
                    yield place, path, file.read()


def from_tar(path):
    with tarfile.open(path, "r:*") as archive:  # read in order, so that xz is unpacked only once
        for member in archive:
            place = split_of(member.name)
            if place and member.isfile():
                yield place, member.name, archive.extractfile(member).read()


def planes_of(data, name):
    """An encoded image as 1024 R, 1024 G, 1024 B."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            image = image.convert("RGB")
            size = image.size
            pixels = image.tobytes()
    except Exception as error:  # Pillow raises many kinds for a broken file
        fail("%s: %s" % (name, error))
    if size != (SIDE, SIDE):
        fail("%s: %d x %d pixels; CIFAR-10's images are %d x %d" % (name, *size, SIDE, SIDE))
    return pixels[0::3] + pixels[1::3] + pixels[2::3]


def interleaved(images, classes):
    """Records of one split: the first image of each class, then the second of each, ..."""
    queues = [sorted(images.get(c, {}).items()) for c in classes]
    records = []
    for turn in range(max(len(q) for q in queues)):
        for label, queue in enumerate(queues):
            if turn < len(queue):
                records.append(bytes([label]) + queue[turn][1])
    return records


def write(path, records):
    with open(path + ".tmp", "wb") as file:
        file.write(b"".join(records))
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)
    print("%-20s %6d records, %d bytes" % (os.path.basename(path), len(records),
                                           sum(map(len, records))))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="folder or tar with train/<class>/ and test/<class>/")
    parser.add_argument("out", help="folder for the .bin files")
    args = parser.parse_args()
    try:
        import PIL  # noqa: F401
    except ImportError:
        fail("Pillow is needed to read images (Debian: python3-pil; or pip install pillow)")

    splits = {"train": {}, "test": {}}
    try:
        source = from_folder(args.images) if os.path.isdir(args.images) else from_tar(args.images)
        for (split, label, name), path, data in source:
            splits[split].setdefault(label, {})[name] = planes_of(data, path)
    except (OSError, tarfile.TarError, EOFError) as error:
        fail("%s: %s" % (args.images, error))

    classes = sorted(set(splits["train"]) | set(splits["test"]))
    if len(classes) != CLASSES:
        fail("%s: %d classes under train/ and test/ (%s); CIFAR-10 has %d"
             % (args.images, len(classes), ", ".join(classes[:12]) or "none", CLASSES))
    for split in splits:
        missing = [c for c in classes if c not in splits[split]]
        if missing:
            fail("%s: no images under %s/ of %s" % (args.images, split, ", ".join(missing)))

    train = interleaved(splits["train"], classes)
    test = interleaved(splits["test"], classes)
    if len(train) < 5:
        fail("%s: %d training images; five files need five" % (args.images, len(train)))
    os.makedirs(args.out, exist_ok=True)
    for i in range(5):
        first, last = i * len(train) // 5, (i + 1) * len(train) // 5
        write(os.path.join(args.out, "data_batch_%d.bin" % (i + 1)), train[first:last])
    write(os.path.join(args.out, "test_batch.bin"), test)
    with open(os.path.join(args.out, "batches.meta.txt"), "w", encoding="utf-8") as file:
        file.write("".join(c + "\n" for c in classes))
    print("classes: " + " ".join(classes))


if __name__ == "__main__":
    main()
