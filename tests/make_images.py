#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_images.py DIR N [UNLABELLED] - images of 28 x 28 pixels in ten classes,
for tests

DIR/images.json names two files of idx, the images compressed, as MNIST and
Fashion-MNIST are: of class k, a dim cross at a place of its own in noise.
Every UNLABELLED-th has no label, -1.  Always the same for the same N.
"""
import gzip
import json
import random
import struct
import sys


def image(draw, label):
    at = 2 * label + 4
    return bytes(draw.randrange(160) +
                 (80 if y == at or x == at else 0)
                 for y in range(28) for x in range(28))


def main():
    folder, n = sys.argv[1], int(sys.argv[2])
    draw = random.Random(n)
    labels = bytes(draw.randrange(10) for _ in range(n))
    every = int(sys.argv[3]) if len(sys.argv) > 3 else n + 1
    pixels = b"".join(image(draw, label) for label in labels)

    with open(folder + "/images.gz", "wb") as out:
        out.write(gzip.compress(struct.pack(">4I", 2051, n, 28, 28) + pixels,
                                mtime=0))
    with open(folder + "/labels", "wb") as out:
        out.write(struct.pack(">2I", 0x0c01, n))
        out.write(struct.pack(f">{n}i", *(
            -1 if i % every == every - 1 else x
            for i, x in enumerate(labels))))
    with open(folder + "/images.json", "w", encoding="ascii") as out:
        json.dump({"pixels": {"file": "images.gz", "scale": 1 / 255},
                   "label": "labels"}, out)


main()
