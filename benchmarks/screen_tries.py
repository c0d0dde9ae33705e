#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `minitaw screen` names the culprit, and nobody else, on a cluster of this machine with
a planted fault (docs/screen.md).

    scripts/env python3 benchmarks/screen_tries.py FOLDER [--nodes 3,4,6] [--tries 20] [--quiet 40] [--faults a60,...] [--load 0]

Nodes with 100 Mbit/s between them, three of two ranks, more of one. Faults take turns until there
are so many tries on each number of nodes; the quota of a core needs root. With --load N so many
programs that do nothing but compute run beside the tries. Writes FOLDER/tries.json, goes on with
what is there, and prints the table. The result files stay in FOLDER, for `minitaw screen -o` to
judge again: `ratios` prints the values of quiet ones relative to the medians, for
tests/instruments/screen/screen_scale.cpp.

    scripts/env python3 benchmarks/screen_tries.py ratios FOLDER > ratios.txt
"""

import argparse
import collections
import contextlib
import fcntl
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
CPU = pathlib.Path("/sys/fs/cgroup/cpu")  # of control groups, version 1
FAULTS = {
    "a70": "an adapter at 70 % of the rate",
    "a60": "an adapter at 60 %",
    "a50": "an adapter at 50 %",
    "two": "two adapters, at 70 and at 55 %",
    "late": "an adapter at 50 %, and a node with 5 ms more latency",
    "pair": "two nodes at a third of the rate between them",
    "quota": "a rank with 40 % of a core",
    "all": "all adapters at 60 %",
    "stopped": "a rank that stops",
    "cut": "a node whose link is cut",
}
DAILY = ["a70", "a60", "a50", "two", "late", "quota"]
BUSY = "while True: pass"


def ranks_of(nodes):
    """Of each node: few ranks beside many nodes keep a try short."""
    return 2 if nodes <= 3 else 1


def process_of(rank):
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0] == str(PROGRAM).encode() and f"PMI_RANK={rank}".encode() in (
                process / "environ"
            ).read_bytes().split(b"\0"):
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


def said_without_end(errors, ranks):
    """Who keeps the job from going on, as [kind, ranks]."""
    named = {
        ("rank", (int(n),)) for n in re.findall(r"rank (\d+) \([^)]*\) does not answer", errors)
    }
    cut = re.findall(
        r"node (\d+) \([^)]*\) does not answer|only node (\d+) answers here: it is cut off", errors
    )
    named |= {
        ("node", tuple(range(ranks * int(a or b), ranks * (int(a or b) + 1)))) for a, b in cut
    }
    return [[kind, list(who)] for kind, who in sorted(named)]


def screen(nodes, rate, options, extra, output):
    command = [
        ROOT / "scripts/cluster",
        "--nodes",
        nodes,
        "--ranks-per-node",
        ranks_of(nodes),
        "--rate",
        f"{rate}mbit",
        *options,
        "--",
        PROGRAM,
        "screen",
        "--json",
        "--seconds",
        "0.05",
        *extra,
        *(["-o", output] if output else []),
    ]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=300, check=False
    )
    try:
        found = json.loads(done.stdout)
        return {
            "found": [[c["kind"], c["ranks"]] for c in found["culprits"]],
            "verdict": found["verdict"],
            "load": found["load"],
            "code": done.returncode,
        }, done.stdout
    except ValueError:
        return {
            "found": said_without_end(done.stderr, ranks_of(nodes)),
            "verdict": "",
            "load": None,
            "code": done.returncode,
        }, done.stderr


def wait_until_idle():
    """Until nobody else has taken more than a twentieth of the cores for two seconds."""

    def times():
        words = [
            int(word)
            for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        ]
        return sum(words), words[3] + words[4]

    while True:
        before = times()
        time.sleep(2)
        every, idle = (b - a for a, b in zip(before, times()))
        if idle > 0.95 * every:
            return


@contextlib.contextmanager
def busy(count):
    """So many programs that take a core each."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def attempt(fault, nodes, output):
    """What was planted, as [kind, ranks], and what the program said."""
    ranks = ranks_of(nodes)
    a, b = random.sample(range(nodes), 2)
    rank = random.randrange(nodes * ranks)
    adapter = lambda node: ["adapter", [ranks * node]]
    endless = ("--rounds", "100", "--watchdog", "4")
    planted, options, extra, act, rate = [], [], (), None, 100
    if fault in ("a70", "a60", "a50"):
        planted, options = [adapter(a)], ["--slow", f"{a}={fault[1:]}mbit"]
    elif fault == "two":  # of three nodes the better one of them, or the third: nobody can tell
        third = ({0, 1, 2} - {a, b}).pop() if nodes == 3 else None
        better = adapter(a) if third is None else ["adapters", sorted([ranks * a, ranks * third])]
        planted, options = [better, adapter(b)], ["--slow", f"{a}=70mbit", "--slow", f"{b}=55mbit"]
    elif fault == "late":
        planted, options = [adapter(a), adapter(b)], [
            "--slow",
            f"{a}=50mbit",
            "--delay",
            f"{b}=5ms",
        ]
    elif fault == "pair":
        planted, options = [["link", sorted([ranks * a, ranks * b])]], [
            "--slow-pair",
            f"{a}-{b}=33mbit",
        ]
    elif fault == "all":
        planted = [["adapters", [ranks * node for node in range(nodes)]]]
        options = [word for node in range(nodes) for word in ("--slow", f"{node}=60mbit")]
    elif fault == "quota":
        planted, act = [["rank", [rank]]], limit
    elif fault == "stopped":
        planted, act, extra = [["rank", [rank]]], stop, endless
    elif fault == "cut":
        planted = [["node", list(range(ranks * a, ranks * (a + 1)))]]
        options, extra = ["--cut", f"{a}@{3 + 3 * random.random():.2f}"], endless
    thread = when_there(rank, act) if act else None
    said = screen(nodes, rate, options, extra, output)
    if thread:
        thread.join()
    return sorted(planted), said


def table(tries):
    print(
        "| nodes | load | fault | tries | all named | somebody healthy named | CLEAN | INCONCLUSIVE |\n|---|---|---|---|---|---|---|---|"
    )
    rows = collections.defaultdict(list)
    for one in tries:
        rows[one["nodes"], one["load_programs"], one["fault"]].append(one)
    for (nodes, load, fault), some in sorted(
        rows.items(), key=lambda row: (row[0][1], row[0][0], row[0][2] == "none", row[0][2])
    ):
        named = sum(all(who in one["found"] for who in one["planted"]) for one in some)
        others = sum(any(who not in one["planted"] for who in one["found"]) for one in some)
        clean, open_ = (
            sum(one["verdict"].startswith(word) for one in some)
            for word in ("CLEAN", "INCONCLUSIVE")
        )
        print(
            f"| {nodes} | {load} | {FAULTS.get(fault, fault)} | {len(some)} | {'-' if fault == 'none' else named} | {others} | {clean} | {open_} |"
        )


KIND_OF = {
    "matrix product": "kernel",
    "attention": "kernel",
    "triad": "kernel",
    "rate between nodes": "between",
    "latency between nodes": "latency",
}


def ratios(folder):
    for path in sorted(folder.glob("none-*.h5")):
        for name, (_, rounds) in load(str(path)).screening["measured"].items():
            for values in rounds if name != "cores taken by others" else ():
                known = values[~numpy.isnan(values)]
                shares = (
                    numpy.median(known) / known
                    if name.startswith("latency")
                    else known / numpy.median(known)
                )
                print("\n".join(f"{KIND_OF.get(name, 'inside')} {share:.4f}" for share in shares))


def main():
    if sys.argv[1:2] == ["ratios"]:
        return ratios(pathlib.Path(sys.argv[2]))
    words = lambda text: text.split(",")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument(
        "--nodes", type=lambda text: [int(word) for word in words(text)], default=[3, 4, 6]
    )
    parser.add_argument(
        "--tries", type=int, default=20, help="with a fault, on each number of nodes"
    )
    parser.add_argument("--quiet", type=int, default=40, help="without a fault")
    parser.add_argument("--faults", type=words, default=DAILY, help=f"of {', '.join(FAULTS)}")
    parser.add_argument(
        "--load", type=int, default=0, help="programs that compute beside the tries"
    )
    parser.add_argument(
        "--until", default="23:59", help="begin no try after this time of day, UTC: 20:40"
    )
    parser.add_argument(
        "--when-idle", action="store_true", help="begin a try only where nobody else computes"
    )
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--lock", help="file to lock for each try: other users of namespaces wait")
    options = parser.parse_args()
    globals()["PROGRAM"] = options.program.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    store = options.folder / "tries.json"
    tries = json.loads(store.read_text()) if store.exists() else []
    done = collections.Counter(
        (one["nodes"], one["load_programs"], one["fault"] == "none") for one in tries
    )
    wanted = [
        (number, nodes, options.faults[number % len(options.faults)] if fault else "none")
        for number in range(max(options.tries, options.quiet))
        for nodes in options.nodes
        for fault in (True, False)
        if done[nodes, options.load, not fault]
        <= number
        < (options.tries if fault else options.quiet)
    ]
    with busy(options.load):
        for number, nodes, fault in wanted:
            if time.strftime("%H:%M", time.gmtime()) >= options.until:
                break
            if options.when_idle:
                wait_until_idle()
            with open(options.lock or os.devnull, "w", encoding="utf-8") as lock:
                if options.lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                output = (
                    options.folder / f"{fault}-{nodes}-{options.load}-{number:03}.h5"
                    if fault not in ("stopped", "cut")
                    else None
                )
                if output:
                    output.unlink(missing_ok=True)
                begin = time.time()
                planted, (found, said) = attempt(fault, nodes, output)
            found["found"].sort()
            good = found["found"] == planted
            tries.append(
                {
                    "fault": fault,
                    "nodes": nodes,
                    "load_programs": options.load,
                    "planted": planted,
                    **found,
                }
                | {"seconds": round(time.time() - begin, 1)}
                | ({} if good else {"said": said})
            )
            store.write_text(json.dumps(tries, indent=1))
            print(
                f"{fault} {nodes} {number}: {planted} -> {found['found']} {found['verdict'][:12]} {found['load'] or 0:.2f} {time.time() - begin:.1f} s"
                f"{'' if good else '   <<<'}",
                flush=True,
            )
    table(tries)
    return None


if __name__ == "__main__":
    main()
