#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""random_runs.py - random runs on several ranks, held against one rank

  random_runs.py FIRST COUNT DIR

DIR has token files DIR/text of bytes; a draw's number makes all of it, so that
`random_runs.py 17 1 DIR` repeats one.  Each draws a model of tests/vectors/hf,
options that change what is computed, and degrees and choices that do not and
that `merak plan` accepts.  Then

* losses, losses of routers and gradient norms of all steps are those of one rank
  to rounding, also if the run goes on from its middle with other degrees;
* with pp above 1 they are those of pp 1 to the bit, where HACKING says so;
* the memory that rank 0 predicted is what it reserved;
* a plan that was saved runs as the same program.

Prints a line for each draw that failed, with its command; exits with 1 then.
"""
import glob
import json
import os
import random
import re
import shutil
import subprocess
import sys

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")
RANKS = 8
STEPS = 4
# What rounding may do in four steps.  AdamW moves an element whose gradient is
# next to nothing by the learning rate, either way; an eps of 1e-5 keeps that
# out.  A router's choice may change with the last bit.
NEAR = 5e-6
NEAR_ROUTED = 3e-5
HELD = ("loss", "grad_norm", "aux", "z")


class Failed(Exception):
    pass


def words(options):
    return [str(w) for pair in options.items() for w in pair if w is not None]


def call(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=300,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def draw_model(r):
    """Its config, layers and experts."""
    paths = sorted(glob.glob(VECTORS + "/hf/*.json"))
    while True:
        with open(r.choice(paths), encoding="utf-8") as f:
            config = json.load(f)
        if "model_type" in config:
            break
    config["vocab_size"] = 257
    layers = "n_layer" if "n_layer" in config else "num_hidden_layers"
    if not any(isinstance(v, list) for v in config.values()):
        config[layers] = r.choice([2, 3, 4, 6])
    experts = [config[k] for k in ("num_local_experts", "num_experts",
                                   "n_routed_experts") if k in config]
    return config, config[layers], experts[0] if experts else 0


def maybe(r, options, chance, name, *values):
    if r.random() < chance:
        options[name] = r.choice(values)


def draw_options(r, experts):
    o = {"--seq": r.choice([16, 24]), "--global-batch": r.choice([4, 8, 12]),
         "--lr": "1e-3", "--eps": "1e-5", "--seed": r.randrange(1, 1 << 20)}
    maybe(r, o, .3, "--clip", "0", "0.5")
    maybe(r, o, .3, "--lr-schedule", "wsd", "constant")
    maybe(r, o, .2, "--doc-mask", None)
    maybe(r, o, .1, "--freeze", "*.0.*", "*.1.*")
    if experts:
        maybe(r, o, .6, "--router-aux", "0.1", "1")
        maybe(r, o, .3, "--router-z", "0.1")
        maybe(r, o, .3, "--expert-capacity", "0.5", "1.5")
    return o


def draw_degrees(r, experts):
    """Degrees, and how many ranks have them."""
    while True:
        tp, pp, dp = (r.choice([1, 1, 2, 2, 4]) for _ in range(3))
        cp = r.choice([1, 1, 1, 2])
        ep = r.choice([1, 2, 4]) if experts else 1
        if 1 < tp * pp * dp * cp * ep <= RANKS:
            break
    if cp * ep == 1 and r.random() < .25:
        stages = [(r.choice([1, 2, 4]), r.choice([1, 2]))
                  for _ in range(r.choice([2, 3]))]
        text = ",".join("%dx%d" % s for s in stages)
        return {"--stages": text}, sum(d * t for d, t in stages)
    p = {"--tp": tp, "--pp": pp, "--dp": dp}
    if cp > 1:
        p["--cp"] = cp
        maybe(r, p, .5, "--cp-form", "gather", "heads")
        maybe(r, p, .5, "--cp-order", "head-tail", "contiguous")
    if ep > 1:
        p.update({"--ep": ep, "--ep-form": r.choice(["gather", "exchange"])})
        maybe(r, p, .4, "--expert-room", 10, 50, 300)
    if dp == 4:
        maybe(r, p, .5, "--dp-in", 2)
    return p, tp * pp * dp * cp * ep


def draw_layout(r, experts, layers):
    p, ranks = draw_degrees(r, experts)
    p["--micro-batch"] = r.choice([1, 2, 4])
    p["--schedule"] = r.choice(
        ["1f1b", "gpipe", "early", "last", "scp", "eager", "eager:4", "zb-h1", "zb-v",
         "interleaved", "sliced:2", "sliced:3/60", "interlaced"])
    if p["--schedule"] in ("interleaved", "zb-v"):
        p["--chunks"] = 2
    maybe(r, p, .4, "--recompute", "full", "selective")
    maybe(r, p, .2, "--sub-pipeline", "yes")
    maybe(r, p, .8, "--zero", 0, 1, 2, 3, 3)
    if p.get("--zero") == 3:
        maybe(r, p, .4, "--fetch", 1, 2)
        maybe(r, p, .3, "--grad-sum", "step")
    if "--dp-in" in p and p.get("--zero", 0) > 1:
        maybe(r, p, .5, "--zero-home", "in")
    maybe(r, p, .3, "--sp", "on", "off")
    maybe(r, p, .3, "--boundary", "whole", "scatter")
    maybe(r, p, .2, "--tp-batch", 50, 100)
    if "--tp-batch" not in p:
        maybe(r, p, .1, "--split", "b0", "w0,b1-%d" % (layers - 1))
    maybe(r, p, .2, "--tp-plan", "*.mlp.*.weight:0", "*.attn.*:replicate",
          "*proj.weight:colwise", "*norm*:replicate,*.mlp.*.weight:rowwise")
    return p, ranks


class Draw:
    def __init__(self, number, folder):
        r = random.Random(number)
        self.dir = os.path.join(folder, "draw-%d" % number)
        self.data = os.path.join(folder, "text")
        self.last = []
        os.makedirs(self.dir)
        config, layers, experts = draw_model(r)
        with open(self.path("model.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        self.near = NEAR_ROUTED if experts else NEAR
        self.options = draw_options(r, experts)
        self.layout = self.planned(r, experts, layers)
        self.moved = r.random() < .25
        if self.moved:
            self.then = self.planned(r, experts, layers)
        self.saved = r.random() < .25

    def path(self, name):
        return os.path.join(self.dir, name)

    def planned(self, r, experts, layers):
        """What is planned: nearly all that is drawn is refused for some reason."""
        of_run = ("--lr", "--eps", "--seed", "--clip", "--lr-schedule")
        own = words({k: v for k, v in self.options.items() if k not in of_run})
        for _ in range(200):
            p, ranks = draw_layout(r, experts, layers)
            rc, out = call("merak", "plan", "--model", self.path("model.json"),
                           "--json", self.path("plan.json"), *own, *words(p))
            if rc == 0:
                return p, ranks
            if rc != 66:
                break
        raise Failed("merak plan %s: %s" % (" ".join(own + words(p)), out))

    def train(self, name, p, ranks, *more):
        """The metrics of a run, and what it printed."""
        self.last = ["srun", "-Q", "-n%d" % ranks, "--overcommit", "merak",
                     "train", "--model", self.path("model.json"), "--data",
                     self.data, "--steps", str(STEPS), "--eval-samples", "0",
                     "--threads", "1", "--deadline", "120", "--metrics",
                     self.path(name), *words(self.options), *words(p), *more]
        rc, out = call(*self.last)
        if rc != 0:
            raise Failed("exit code %d: %s" % (rc, out[-600:]))
        for line in re.findall(r"predicted (\d+) bytes.*reserved (\d+)$", out,
                               re.M):
            if line[0] != line[1]:
                raise Failed("memory predicted %s, reserved %s" % line)
        with open(self.path(name), encoding="ascii") as lines:
            return [json.loads(line) for line in lines], out

    def hold(self, want, got, limit):
        if len(want) != len(got):
            raise Failed("%d steps, not %d" % (len(got), len(want)))
        for a, b in zip(want, got):
            for what in (w for w in HELD if w in a):
                if not abs(a[what] - b[what]) <= limit * abs(a[what]):
                    raise Failed("step %d: %s %r against %r" % (
                        a["step"], what, b[what], a[what]))

    def hold_bits(self, got):
        p, ranks = self.layout
        if (p.get("--pp", 1) == 1 or "--sub-pipeline" in p or
                p["--schedule"].startswith(("sliced", "interlaced"))):
            return
        leave = ("--schedule", "--chunks", "--recompute", "--boundary",
                 "--fetch")
        flat = {k: v for k, v in p.items() if k not in leave}
        flat["--pp"] = 1
        flat, _ = self.train("flat", flat, ranks // p["--pp"])
        self.hold(flat, got, 0)

    def resume(self, want):
        """From the checkpoint in the middle, with other degrees."""
        p, ranks = self.layout
        ckpt = self.path("ckpt")
        self.train("run", p, ranks, "--ckpt", ckpt, "--ckpt-every",
                   str(STEPS // 2), "--keep", "0")
        shutil.rmtree("%s/step-%08d" % (ckpt, STEPS))
        with open(ckpt + "/LATEST", "w", encoding="ascii") as f:
            f.write("step-%08d\n" % (STEPS // 2))
        got, _ = self.train("run", *self.then, "--ckpt", ckpt, "--resume",
                            "must")
        self.hold(want, got, self.near)

    def run(self):
        want, _ = self.train("one", {}, 1)
        if self.moved:
            self.resume(want)
            return
        p, ranks = self.layout
        got, out = self.train("run", p, ranks)
        self.hold(want, got, self.near)
        self.hold_bits(got)
        if self.saved:
            again, replayed = self.train(
                "again", {"--plan": self.path("plan.json")}, ranks)
            self.hold(got, again, 0)
            ids = [re.findall("program id (.*)", o) for o in (out, replayed)]
            if ids[0] != ids[1] or not ids[0]:
                raise Failed("programs %s and %s" % tuple(ids))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    first, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    bad = 0
    for number in range(first, first + count):
        draw = None
        try:
            draw = Draw(number, folder)
            draw.run()
            shutil.rmtree(draw.dir)
        except (Failed, subprocess.TimeoutExpired) as why:
            bad += 1
            print("draw %d: %s\n  %s" % (
                number, why, " ".join(draw.last) if draw else ""), flush=True)
    print("%d draws, %d failed" % (count, bad))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
