#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_watched.py - what a run has written, by the readers of others

    python3 check_watched.py RUN FILE.prom [STEPS]

Every step once, in order and without a gap: in metrics.jsonl by pandas, and in
the event files by TensorBoard's own reader, with the same values.  The page for
Prometheus is read by both of its parsers.  With STEPS the run has ended there.
"""
import sys

import pandas
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics)
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing import event_accumulator

run, page = sys.argv[1:3]
lines = pandas.read_json(run + "/metrics.jsonl", lines=True)
steps = lines[lines["loss"].notna()] if "loss" in lines else lines
have = list(steps["step"])
assert have == list(range(1, len(have) + 1)), have
if len(sys.argv) > 3:
    assert len(have) == int(sys.argv[3]), len(have)

events = event_accumulator.EventAccumulator(
    run + "/tensorboard", size_guidance={event_accumulator.SCALARS: 0},
    purge_orphaned_data=False)
events.Reload()
tags = events.Tags()["scalars"]
loss = [t for t in tags if t.split("/")[-1] == "loss" and "held" not in t
        and "eval" not in t and "valid" not in t]
assert len(loss) == 1, tags
seen = events.Scalars(loss[0])
assert [s.step for s in seen] == have, [s.step for s in seen]
for scalar, want in zip(seen, steps["loss"]):
    assert abs(scalar.value - want) <= 1e-6 * abs(want), (scalar, want)

families = {f.name: f for f in
            text_string_to_metric_families(open(page).read())}
step = families["merak_step"].samples
assert len(step) == 1
assert step[0].value <= len(have)
if len(sys.argv) > 3:
    assert step[0].value == len(have), step
if "merak_loss" in families or len(sys.argv) > 3:  # else it has just begun
    value = families["merak_loss"].samples[0].value
    assert abs(value - steps["loss"].iloc[int(step[0].value) - 1]) <= \
        1e-5 * abs(value), value
# Prometheus' older text has no family for the _total of a counter.
by_name = {s.name: s.value for f in families.values() for s in f.samples}
strict = list(openmetrics(open(page).read()))
for family in strict:
    assert family.documentation and family.type in ("gauge", "counter"), family
    for sample in family.samples:
        assert by_name[sample.name] is not None
assert {s.name for f in strict for s in f.samples} == set(by_name)
print(len(have), "steps,", len(tags), "tags,", len(families), "families")
