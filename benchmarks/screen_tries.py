#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `minitaw screen` names the culprit, and nobody else, on a cluster of this machine with a planted fault (docs/screen.md).

    scripts/env python3 benchmarks/screen_tries.py FOLDER [--tries 20] [--quiet 100] [--kinds adapter,pair,...]     # root, for the CPU quota

Three nodes of two ranks, 100 Mbit/s. Writes FOLDER/tries.json, resumes what is there, and prints the table. The result files of quiet
tries stay in FOLDER: `ratios` prints their values relative to the medians, for tests/screen/screen_scale.cpp.

    scripts/env python3 benchmarks/screen_tries.py ratios FOLDER > ratios.txt
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from minitaw.record import load  # noqa: E402

PROGRAM = ROOT / "build/host/minitaw"
NODES, RANKS = 3, 6
CPU = pathlib.Path("/sys/fs/cgroup/cpu")  # of control groups, version 1
KINDS = {"adapter": "an adapter at a third of the rate", "pair": "two nodes at a third of the rate", "quota": "a rank with 40 % of a core",
         "latency": "a node with 5 ms more latency", "stopped": "a rank that stops", "cut": "a node whose link is cut", "quiet": "none"}


def process_of(rank):
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0] == str(PROGRAM).encode() and f"PMI_RANK={rank}".encode() in (process / "environ").read_bytes().split(b"\0"):
                return int(process.name)
        except OSError:
            pass
    return None


def when_there(rank, act):
    """In the background, as soon as the process of the rank is there."""
    def wait():
        for _ in range(500):
            if process := process_of(rank):
                return act(process)
            time.sleep(0.02)
    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def limit(process):
    group = CPU / "minitaw_tries"
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_period_us").write_text("20000")
    (group / "cpu.cfs_quota_us").write_text("8000")
    (group / "cgroup.procs").write_text(str(process))


def stop(process):
    time.sleep(2 + 3 * random.random())
    os.kill(process, signal.SIGSTOP)


def screen(options, extra=(), output=None):
    command = [ROOT / "scripts/cluster", "--nodes", "3", "--ranks-per-node", "2", "--rate", "100mbit", *options, "--", PROGRAM, "screen", "--json",
               "--seconds", "0.05", *extra, *(["-o", output] if output else [])]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False)
    try:
        return [[c["kind"], c["ranks"], c["nodes"]] for c in json.loads(done.stdout)["culprits"]], done.stdout
    except ValueError:
        named = set(re.findall(r"((?:rank|node) \d+ \([^)]*\)) does not answer", done.stderr))
        named |= {f"node {n} (ranks {2 * int(n)}, {2 * int(n) + 1})" for n in re.findall(r"only node (\d+) answers here: it is cut off", done.stderr)}
        return sorted(named), done.stderr


def attempt(kind, folder, number):
    """What was planted, in the words of the program, and what it found."""
    node, rank = random.randrange(NODES), random.randrange(RANKS)
    a, b = sorted(random.sample(range(NODES), 2))
    endless = ("--rounds", "100", "--watchdog", "4")
    if kind == "adapter":
        return ["adapter", [2 * node], [f"node {node}"]], screen(["--slow", f"{node}=33mbit"])
    if kind == "pair":
        return ["link", [2 * a, 2 * b], [f"node {a}", f"node {b}"]], screen(["--slow-pair", f"{a}-{b}=33mbit"])
    if kind == "latency":
        return ["adapter", [2 * node], [f"node {node}"]], screen(["--delay", f"{node}=5ms"])
    if kind == "quota":
        thread = when_there(rank, limit)
        found = screen([])
        thread.join()
        return ["rank", [rank], [f"node {rank // 2}"]], found
    if kind == "stopped":
        thread = when_there(rank, stop)
        found = screen([], endless)
        thread.join()
        return f"rank {rank} (node {rank // 2})", found
    if kind == "cut":
        return f"node {node} (ranks {2 * node}, {2 * node + 1})", screen(["--cut", f"{node}@{3 + 3 * random.random():.2f}"], endless)
    return None, screen([], output=folder / f"quiet-{number:03}.h5")


def table(tries):
    print("| fault | tries | named | nobody else named |\n|---|---|---|---|")
    for kind, words in KINDS.items():
        some = [one for one in tries if one["kind"] == kind]
        if kind == "quiet" and some:
            print(f"| {words} | {len(some)} | - | {sum(not one['found'] for one in some)} |")
        elif some:
            named = [one for one in some if one["planted"] in one["found"]]
            print(f"| {words} | {len(some)} | {len(named)} | {sum(len(one['found']) == 1 for one in named)} |")


KIND_OF = {"matrix product": "kernel", "attention": "kernel", "triad": "kernel",
           "rate between nodes": "between", "latency between nodes": "latency"}


def ratios(folder):
    for path in sorted(folder.glob("quiet-*.h5")):
        for name, (_, rounds) in load(str(path)).screening["measured"].items():
            for values in rounds:
                known = values[~numpy.isnan(values)]
                shares = numpy.median(known) / known if name.startswith("latency") else known / numpy.median(known)
                print("\n".join(f"{KIND_OF.get(name, 'inside')} {share:.4f}" for share in shares))


def main():
    if sys.argv[1:2] == ["ratios"]:
        return ratios(pathlib.Path(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--quiet", type=int, default=100)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    store = options.folder / "tries.json"
    tries = json.loads(store.read_text()) if store.exists() else []
    for number in range(max(options.tries, options.quiet)):
        for kind in options.kinds:
            if number >= (options.quiet if kind == "quiet" else options.tries) or sum(one["kind"] == kind for one in tries) > number:
                continue
            planted, (found, said) = attempt(kind, options.folder, number)
            good = found == ([planted] if planted else [])
            tries.append({"kind": kind, "planted": planted, "found": found} | ({} if good else {"said": said}))
            store.write_text(json.dumps(tries, indent=1))
            print(f"{kind} {number}: {planted} -> {found}{'' if good else '   <<<'}", flush=True)
    table(tries)
    return None


if __name__ == "__main__":
    main()
