#!/usr/bin/python3
"""Draws a learnable picture set in CIFAR-10's layout, for machines that cannot reach the real one.

    draw.py OUTDIR [--train N] [--test N] [--seed N]

Writes OUTDIR/cifar-10-python.tar.gz, which unpacks to cifar-10-batches-py/ as the original archive does: five pickled
training batches, one test batch and batches.meta. Each of the ten classes is a shape or a texture at a random place,
size, angle and colour over a random background, with noise. Needs numpy only; about 3,000 pictures a second.
"""
import argparse
import io
import os
import pickle
import tarfile

import numpy as np

NAMES = ["disc", "ring", "square", "frame", "triangle", "cross", "stripes", "checks", "dots", "star"]
SIDE = 32


def canvas(rng, count):
    """Coordinates of every pixel in each picture's own frame: moved, scaled and turned at random."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / (SIDE / 2) - 1 + 1 / SIDE
    centre = rng.uniform(-0.3, 0.3, (2, count, 1, 1)).astype(np.float32)
    scale = rng.uniform(0.45, 0.75, (count, 1, 1)).astype(np.float32)
    angle = rng.uniform(-0.6, 0.6, (count, 1, 1)).astype(np.float32)
    x, y = (x - centre[0]) / scale, (y - centre[1]) / scale
    return x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)


def mask(name, x, y):
    """Mask of the pixels of the shape; a shape with an outline is in the square from -1 to 1."""
    radius, box = np.hypot(x, y), np.maximum(abs(x), abs(y))
    if name == "disc":
        return radius < 1
    if name == "ring":
        return (radius < 1) & (radius > 0.55)
    if name == "square":
        return box < 0.9
    if name == "frame":
        return (box < 0.95) & (box > 0.5)
    if name == "triangle":
        return (y < 0.8) & (y > 2 * abs(x) - 1)
    if name == "cross":
        return (np.minimum(abs(x), abs(y)) < 0.25) & (box < 1)
    if name == "stripes":
        return np.sin(9 * x) > 0
    if name == "checks":
        return np.sin(7 * x) * np.sin(7 * y) > 0
    if name == "dots":
        return np.cos(8 * x) + np.cos(8 * y) > 0.9
    if name == "star":
        return radius < 0.6 + 0.4 * np.cos(5 * np.arctan2(y, x))
    raise ValueError(name)


def draw_class(rng, name, count):
    """`count` pictures of one class, uint8 (count, 3072), the three colour planes one after the other as in CIFAR."""
    shape = mask(name, *canvas(rng, count))[:, None]
    back = rng.uniform(30, 225, (count, 3, 1, 1))
    contrast = rng.uniform(50, 110, (count, 1, 1, 1)) * rng.choice([-1, 1], (count, 1, 1, 1))
    front = back + contrast * rng.uniform(0.5, 1, (count, 3, 1, 1))
    slope = np.linspace(-1, 1, SIDE).reshape(1, 1, 1, SIDE) * rng.uniform(-25, 25, (count, 1, 1, 1))
    pictures = np.where(shape, front, back) + slope + rng.normal(0, 18, (count, 3, SIDE, SIDE))
    return np.clip(pictures, 0, 255).astype(np.uint8).reshape(count, -1)


def draw_split(rng, count):
    """As many of each class as `count` allows, shuffled."""
    counts = [count // 10 + (number < count % 10) for number in range(10)]
    pictures = np.concatenate([draw_class(rng, name, n) for name, n in zip(NAMES, counts)])
    labels = np.repeat(np.arange(10), counts)
    order = rng.permutation(count)
    return pictures[order], labels[order]


def pack_batch(title, pictures, labels, first):
    names = [f"{NAMES[label]}_{first + i:06d}.png".encode() for i, label in enumerate(labels)]
    batch = {b"batch_label": title.encode(), b"labels": labels.tolist(), b"data": pictures, b"filenames": names}
    return pickle.dumps(batch, protocol=2)


def batches(rng, train, test):
    """(name, bytes) of every file of the archive."""
    size = -(-train // 5)
    meta = {b"num_cases_per_batch": size, b"label_names": [n.encode() for n in NAMES], b"num_vis": 3 * SIDE * SIDE}
    yield "batches.meta", pickle.dumps(meta, protocol=2)
    pictures, labels = draw_split(rng, train)
    for number in range(5):
        part = slice(number * size, (number + 1) * size)
        title = f"training batch {number + 1} of 5"
        yield f"data_batch_{number + 1}", pack_batch(title, pictures[part], labels[part], number * size)
    yield "test_batch", pack_batch("testing batch 1 of 1", *draw_split(rng, test), train)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("outdir")
    parser.add_argument("--train", type=int, default=5000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=10)
    args = parser.parse_args()
    if args.train < 50 or args.test < 10:
        parser.error("draw at least 50 training and 10 test pictures, so that every class is in every part")
    os.makedirs(args.outdir, exist_ok=True)
    path = os.path.join(args.outdir, "cifar-10-python.tar.gz")
    # Noise does not compress: level 1 is as small as any other, and fast.
    with tarfile.open(path + ".part", "w:gz", compresslevel=1) as tar:
        for name, content in batches(np.random.default_rng(args.seed), args.train, args.test):
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size, info.mtime, info.mode = len(content), 1244505600, 0o644
            tar.addfile(info, io.BytesIO(content))
    os.replace(path + ".part", path)
    print(f"{path}: {args.train} training and {args.test} test pictures, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
