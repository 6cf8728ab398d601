#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wandb_offline.py - the metrics of a run, as an offline run of Weights & Biases

    python3 wandb_offline.py RUN [PROJECT]

RUN is what --ckpt named.  Nothing is sent: `wandb sync` does that with the
folder that it prints, from where there is a network.  metrics.jsonl has every
step once, over all starts of the run, and so has what this writes; the id is
that of the run's first start, whenever this is called.
"""
import json
import os
import re
import sys

import wandb

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
folder = os.path.realpath(sys.argv[1])
name = os.path.basename(folder)


def lines(path):
    """Objects of a file; the last line may still be being written."""
    with open(path) as text:
        return [json.loads(line) for line in text if line.endswith("\n")]


starts = lines(os.path.join(folder, "run.jsonl"))
metrics = starts[-1].get("metrics", os.path.join(folder, "metrics.jsonl"))
config = {key: value for key, value in starts[-1].items()
          if isinstance(value, (int, float, str))}
run = wandb.init(mode="offline", config=config,
                 project=sys.argv[2] if len(sys.argv) == 3 else "merak",
                 name=name, id="%s-%d" % (re.sub(r"[^\w.-]", "-", name),
                                         starts[0]["time"]))
for line in lines(metrics):
    row = {key: value for key, value in line.items() if value is not None}
    run.log({**row, "_timestamp": row["time"]}, step=row["step"])
print(os.path.dirname(run.dir))
run.finish()
