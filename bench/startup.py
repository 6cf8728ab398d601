#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""startup.py - what comes before the first step

    startup.py --builddir B [--rounds N] [--nodes N] [--emulated N]

Two things, medians of all rounds:

 * 64 tasks on eight nodes of a sandbox: from calling srun to the end of the
   first training step, against a program that does PMIx_Init, a fence and no
   more (hello.c).
 * the rank map of 1024 nodes of 8 tasks (`srun --merak-map=show`): from calling
   srun to its last line.  The controller is a real slurmctld; its nodes have no
   slurmd and are said to be idle, so that srun gets as far as launching.

Needs what `merak sandbox` needs, and `make -C B/bench hello`.
"""
import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE.parent / "tests/vectors/parity/gpt2-tied.json"


def until(command, wanted, env=None, timeout=300):
    """Seconds until a line of the command's output matches; then it is killed
    or, with timeout None, waited for."""
    begin = time.monotonic()
    took = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env,
                          stderr=subprocess.STDOUT) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if took is None and re.search(wanted, line):
                took = time.monotonic() - begin
                if timeout is not None:
                    process.kill()
                    break
    if took is None:
        sys.exit(f"{' '.join(command)}: no {wanted!r} in\n{''.join(said)}")
    return took


def installed(builddir):
    """The program itself: what stands for it in a build tree is a script of
    libtool's, which takes as long again to start."""
    os.environ["LD_LIBRARY_PATH"] = f"{builddir}/runtime/.libs"
    program = pathlib.Path(builddir) / "cmd/.libs/merak"
    return str(program) if program.exists() else "merak"


def inside(args):
    """In a sandbox: both programs, turn by turn."""
    tmp = tempfile.mkdtemp()
    subprocess.run(["merak", "data", "pack", "--tokenizer", "byte", "--out",
                    f"{tmp}/text", "/usr/share/common-licenses/GPL-3"],
                   check=True, stdout=subprocess.DEVNULL)
    srun = ["srun", f"-N{args.nodes}", f"-n{8 * args.nodes}",
            "--ntasks-per-node=8"]
    programs = {
        "hello": (srun + [f"{args.builddir}/bench/hello"], "all are here"),
        "train": (srun + ["--merak-tp=2", "--merak-pp=2",
                          installed(args.builddir), "train", "--model",
                          str(CONFIG), "--data", f"{tmp}/text", "--seq", "32",
                          "--global-batch",
                          str(4 * args.nodes), "--steps", "1", "--threads",
                          "1", "--eval-samples", "0", "--transport", "ucx"],
                  "step 1/1 "),
    }
    for _ in range(args.rounds):
        for name, (command, wanted) in programs.items():
            print(name, until(command, wanted, timeout=None), flush=True)


def tasks(args):
    out = subprocess.run(
        [f"{args.builddir}/cmd/merak", "sandbox", "--nodes", str(args.nodes),
         "--cpus", "8", "--", sys.executable, __file__, "--inside",
         "--builddir", args.builddir, "--rounds", str(args.rounds),
         "--nodes", str(args.nodes)],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    times = {}
    for line in out.splitlines():
        name, took = line.split()
        times.setdefault(name, []).append(float(took))
    hello, train = (statistics.median(times[n]) for n in ("hello", "train"))
    print(f"| {8 * args.nodes} tasks on {args.nodes} nodes: PMIx hello | "
          f"{hello:.2f} s |")
    print(f"| the same: first step of training | {train:.2f} s |")
    print(f"| training's more | {train - hello:.2f} s |")


def emulated_conf(base, where, nodes):
    """A slurm.conf with so many nodes that nobody serves, in 32s to a leaf."""
    where.mkdir()
    (where / "ctld").mkdir()
    text = (base / "slurm.conf").read_text()
    port = int(re.search(r"SlurmctldPort=(\d+)", text)[1]) + 30
    text = re.sub(r"SlurmctldPort=\d+", f"SlurmctldPort={port}", text)
    text = text.replace(f"{base}/ctld", f"{where}/ctld")
    text = text.replace(f"{base}/plugstack", f"{where}/plugstack")
    text = re.sub(r"NodeName=.*", f"NodeName=n[1-{nodes}] NodeAddr=127.0.0.1 "
                  "CPUs=8 State=IDLE", text) + "SlurmdTimeout=0\n"
    (where / "slurm.conf").write_text(text)
    (where / "plugstack.conf").write_text(
        (base / "plugstack.conf").read_text())
    leaves = range((nodes + 31) // 32)
    (where / "topology.conf").write_text("".join(
        f"SwitchName=leaf{i} Nodes=n[{32 * i + 1}-{min(32 * i + 32, nodes)}]\n"
        for i in leaves) + f"SwitchName=root Switches=leaf[0-{leaves[-1]}]\n")


def map_once(env, nodes, words):
    """One controller a time: its nodes never answer that a job is over."""
    path = env["PATH"] + ":/usr/sbin"
    controller = subprocess.Popen(["slurmctld", "-D", "-c"],
                                  env={**env, "PATH": path},
                                  stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            ready = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"],
                                   env=env, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL).stdout.strip()
            if ready == str(nodes):
                break
            time.sleep(0.1)
        return until(["srun", f"-N{nodes}", "--ntasks-per-node=8",
                      *words, "true"],
                     r"and \d+ more nodes", env=env)
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait()


def rank_map(args):
    top = tempfile.mkdtemp()
    os.chmod(top, 0o755)  # munged asks for that
    base = pathlib.Path(top) / "sandbox"
    merak = f"{args.builddir}/cmd/merak"
    subprocess.run([merak, "sandbox", "start", "--dir", base, "--nodes", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    try:
        emulated_conf(base, base / "many", args.emulated)
        env = {**os.environ, "SLURM_CONF": f"{base}/many/slurm.conf"}
        took = [map_once(env, args.emulated,
                         ["--merak-tp=8", "--merak-pp=4", "--merak-map=show"])
                for _ in range(args.rounds)]
    finally:
        subprocess.run([merak, "sandbox", "stop", "--dir", base])
    print(f"| rank map of {args.emulated} nodes, {8 * args.emulated} tasks | "
          f"{statistics.median(took):.2f} s |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--builddir", required=True, type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--emulated", type=int, default=1024)
    parser.add_argument("--only", choices=["tasks", "map"])
    parser.add_argument("--inside", action="store_true",
                        help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return inside(args)
    print(f"# Start-up\n\n{os.cpu_count()} cores, load "
          f"{os.getloadavg()[0]:.1f} at the start; medians of {args.rounds} "
          "rounds.\n\n| what | time |\n| --- | ---: |", flush=True)
    if args.only != "map":
        tasks(args)
    if args.only != "tasks":
        rank_map(args)
    return None


main()
