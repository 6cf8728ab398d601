# SPDX-License-Identifier: Apache-2.0
# ckpt_h5py.py - read a checkpoint as a user of h5py would
#
# ckpt_h5py.py CKPT WANT STEP: every tensor of CKPT/master.h5 must be, byte for
# byte, the file of its name in WANT; the attributes must tell the step.

import os
import sys

import h5py
import numpy


def tensors(master):
    names = []
    master.visititems(lambda name, item: names.append(name)
                      if isinstance(item, h5py.Dataset) else None)
    return names


def main(ckpt, want, step):
    with h5py.File(os.path.join(ckpt, "master.h5"), "r") as master:
        assert master.attrs["format"] == b"merak-checkpoint"
        assert master.attrs["step"] == int(step), master.attrs["step"]
        assert master.attrs["seed"] == 2**64 - 6
        names = tensors(master)
        files = sorted(os.listdir(want))
        assert sorted(n.replace("/", ".") for n in names) == files, names
        for name in names:
            expected = numpy.fromfile(
                os.path.join(want, name.replace("/", ".")), "<f4")
            got = master[name][...]
            assert master[name].is_virtual, name
            assert got.tobytes() == expected.tobytes(), name
            # A part of it too, across the shards' seams.
            assert (got[..., 1:].tobytes() ==
                    master[name][..., 1:].tobytes()), name
    print(len(names), "tensors")


main(*sys.argv[1:])
