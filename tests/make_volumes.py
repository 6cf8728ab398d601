#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_volumes.py DIR N SIDE - volumes of SIDE points a side in three classes
of points, for tests

DIR/volumes.json names two files of idx.  In noise there are a ball, class 1, and
a cube, class 2, which are as bright as each other: what tells them apart is
their shape.  Always the same for the same N.
"""
import json
import random
import struct
import sys


def volume(draw, side):
    radius = side // 4
    ball, cube = ([draw.randrange(radius, side - radius) for _ in range(3)]
                  for _ in range(2))
    points, classes = bytearray(), bytearray()
    for at in ((z, y, x) for z in range(side) for y in range(side)
               for x in range(side)):
        label = 0
        if max(abs(a - b) for a, b in zip(at, cube)) < radius:
            label = 2
        if sum((a - b) ** 2 for a, b in zip(at, ball)) <= radius * radius:
            label = 1
        points.append(draw.randrange(120) + (100 if label else 0))
        classes.append(label)
    return points, classes


def main():
    folder, n, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    draw = random.Random(n)
    points, classes = zip(*(volume(draw, side) for _ in range(n)))

    with open(folder + "/scans", "wb") as out:
        out.write(struct.pack(">6I", 0x0805, n, side, side, side, 1) +
                  b"".join(points))
    with open(folder + "/masks", "wb") as out:
        out.write(struct.pack(">5I", 0x0804, n, side, side, side) +
                  b"".join(classes))
    with open(folder + "/volumes.json", "w", encoding="ascii") as out:
        json.dump({"scan": {"file": "scans", "scale": 1 / 255},
                   "mask": "masks"}, out)


main()
