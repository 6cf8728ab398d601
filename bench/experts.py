#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""experts.py - training a small Mixtral against transformers, in one run

  bench/experts.py [--merak PATH] --python PATH [--ranks 1,2] [--launch CMD]
                   [--steps N] [--rounds N] [--threads N]

Four layers of 256 channels, eight experts of 512, two a token; tokens at random.
Merak alternates with bench/experts_pytorch.py, as whole processes with the same
number of threads for each rank.  A step is forward, backward and AdamW of as
many sequences in both; a rate is the median over steps behind the first two.
On one rank the peer is transformers' model as it is (eager experts).  On two it
is that in DistributedDataParallel over gloo, and Merak divides the experts
(--ep 2); CMD, to which the number of ranks and `merak train ..` are added,
starts them ("srun -n"; without a cluster, all of it in `merak sandbox --nodes 1
--`, CMD "srun --overcommit -n").  Memory is the most that one rank's process
had.  Prints medians, and the ratios to the peer round by round; on one rank also
those of processor time, which other load of the machine changes less: Merak's
is what a process takes beyond one of the first two steps alone.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "experts_pytorch.py")
MODEL = {"model_type": "mixtral", "vocab_size": 257, "hidden_size": 256,
         "intermediate_size": 512, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 4,
         "num_local_experts": 8, "num_experts_per_tok": 2,
         "max_position_embeddings": 512, "tie_word_embeddings": False}
SEQ, BATCH, SKIP = 128, 8, 2


def environment(args):
    return dict(os.environ, OMP_NUM_THREADS=str(args.threads),
                HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def train(args, ranks, steps):
    """Seconds of processor time, of a process that is not srun's"""
    metrics = os.path.join(args.folder, "metrics.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    command = [args.merak, "train", "--model", args.model, "--data", args.data,
               "--seq", str(SEQ), "--global-batch", str(BATCH),
               "--micro-batch", str(BATCH), "--steps", str(steps),
               "--valid-fraction", "0", "--threads", str(args.threads),
               "--metrics", metrics]
    if ranks > 1:
        command = (args.launch.split() + [str(ranks)] + command +
                   ["--ep", str(ranks)])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment(args), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return (after.ru_utime - before.ru_utime + after.ru_stime -
            before.ru_stime)


def run_merak(args, ranks):
    start = train(args, ranks, SKIP) if ranks == 1 else 0
    busy = train(args, ranks, args.steps) - start
    with open(os.path.join(args.folder, "metrics.jsonl"),
              encoding="utf-8") as f:
        steps = [json.loads(line) for line in f]
    return (BATCH * SEQ / statistics.median(s["step_s"] for s in steps[SKIP:]),
            max(s["memory_peak_bytes"] for s in steps),
            busy / (args.steps - SKIP))


def run_pytorch(args, ranks):
    out = subprocess.run(
        [args.python, PEER, "--model", args.model, "--ranks", str(ranks),
         "--seq", str(SEQ), "--batch", str(BATCH), "--steps", str(args.steps),
         "--skip", str(SKIP), "--threads", str(args.threads)],
        stdout=subprocess.PIPE, text=True, env=environment(args),
        check=True).stdout.split()
    return tuple(float(x) for x in out)


def compare(args, ranks):
    ours, theirs = [], []
    for i in range(args.rounds):
        pair = [(ours, run_merak), (theirs, run_pytorch)]
        for to, run in pair if i % 2 == 0 else pair[::-1]:
            to.append(run(args, ranks))
    rates = [a[0] / b[0] for a, b in zip(ours, theirs)]
    memory = [a[1] / b[1] for a, b in zip(ours, theirs)]
    busy = [b[2] / a[2] for a, b in zip(ours, theirs)]
    for name, of in (("merak", ours), ("transformers", theirs)):
        print(f"{ranks} rank{'s' if ranks > 1 else ''}  {name:12}  "
              f"{statistics.median(x[0] for x in of):8.0f} tokens/s  "
              f"{statistics.median(x[1] for x in of) / 2**20:6.0f} MiB")
    print(f"  tokens/s, merak over transformers: "
          f"{statistics.median(rates):.2f} "
          f"({' '.join(f'{x:.2f}' for x in rates)})")
    if ranks == 1:
        print(f"  steps a second of processor time, merak over transformers: "
              f"{statistics.median(busy):.2f} "
              f"({' '.join(f'{x:.2f}' for x in busy)})")
    print(f"  memory, merak over transformers: "
          f"{statistics.median(memory):.2f} "
          f"({' '.join(f'{x:.2f}' for x in memory)})", flush=True)


def main():
    top = os.path.dirname(HERE)
    p = argparse.ArgumentParser()
    p.add_argument("--merak", default=os.path.join(top, "build/cmd/merak"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--ranks", default="1,2")
    p.add_argument("--launch", default="srun -n")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as args.folder:
        args.model = os.path.join(args.folder, "config.json")
        args.data = os.path.join(args.folder, "d")
        text = os.path.join(args.folder, "text")
        with open(args.model, "w", encoding="utf-8") as f:
            json.dump(MODEL, f)
        with open(text, "w", encoding="utf-8") as f:
            f.write(" ".join(str(i * i) for i in range(40000)))
        subprocess.run([args.merak, "data", "pack", "--tokenizer", "byte",
                        "--out", args.data, text], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for ranks in args.ranks.split(","):
            compare(args, int(ranks))


if __name__ == "__main__":
    main()
