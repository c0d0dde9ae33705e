#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often `minitaw screen` names the culprit, and no one else, on a cluster of this machine with
a planted fault (docs/screen.md).

    scripts/env python3 benchmarks/results/screen_tries.py FOLDER [--nodes 3,4,6] [--tries 20]
        [--quiet 40] [--faults a60,...] [--load 0]

Nodes with 100 Mbit/s between them, three of two ranks, more of one. Faults take turns until there
are so many tries on each number of nodes; the quota of a core needs root. With --load N so many
programs that do nothing but compute run beside the tries. Writes FOLDER/tries.json, goes on with
what is there, and prints the table. The result files stay in FOLDER, for `minitaw screen -o` to
judge again: `ratios` prints the values of quiet ones relative to the medians, for
tests/instruments/screen/screen_scale.cpp.

    scripts/env python3 benchmarks/results/screen_tries.py ratios FOLDER > ratios.txt
"""

import collections
import contextlib
import fcntl
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy
from faults import limit_processor, stop, when_there
from pages import PROGRAM, ROOT, cluster_words, end, markdown, parser_of
from minitaw.record import load
from minitaw.settings import grouped

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
NONE = "none"
DAILY = ["a70", "a60", "a50", "two", "late", "quota"]
WITHOUT_END = ["stopped", "cut"]
ENDLESS = ["--rounds", "100", "--watchdog", "4"]
RATE = "100mbit"
SCREEN = ["screen", "--json", "--seconds", "0.05"]
MOST_SECONDS = 300  # of a try
BUSY = "while True: pass"
IDLE = 0.95  # share of the cores that no one takes


def ranks_of(nodes):
    """Of each node: few ranks beside many nodes keep a try short."""
    return 2 if nodes <= 3 else 1


@dataclass
class Plan:
    """A fault of a try."""

    planted: list  # [kind, ranks] of each culprit
    cluster: list = field(default_factory=list)  # options of scripts/cluster
    screen: list = field(default_factory=list)  # options of minitaw screen
    rank: int = 0
    act: Callable = None  # of the process of this rank


class Choice:
    """Two nodes and a rank by lot, and what a fault on them is."""

    def __init__(self, nodes):
        self.nodes, self.ranks = nodes, ranks_of(nodes)
        self.a, self.b = random.sample(range(nodes), 2)
        self.rank = random.randrange(nodes * self.ranks)

    def adapter(self, node):
        return ["adapter", [self.ranks * node]]

    def slow(self, node, percent):
        return ["--slow", f"{node}={percent}mbit"]

    def plan(self, fault):
        if fault in ("a70", "a60", "a50"):
            return Plan([self.adapter(self.a)], self.slow(self.a, fault[1:]))
        return getattr(self, fault)()

    def none(self):
        return Plan([])

    def two(self):
        """Of three nodes the better one of them, or the third: no one can tell."""
        better = self.adapter(self.a)
        if self.nodes == 3:
            (third,) = {0, 1, 2} - {self.a, self.b}
            better = ["adapters", sorted([self.ranks * self.a, self.ranks * third])]
        return Plan([better, self.adapter(self.b)], self.slow(self.a, 70) + self.slow(self.b, 55))

    def late(self):
        planted = [self.adapter(self.a), self.adapter(self.b)]
        return Plan(planted, [*self.slow(self.a, 50), "--delay", f"{self.b}=5ms"])

    def pair(self):
        link = ["link", sorted([self.ranks * self.a, self.ranks * self.b])]
        return Plan([link], ["--slow-pair", f"{self.a}-{self.b}=33mbit"])

    def all(self):
        adapters = ["adapters", [self.ranks * node for node in range(self.nodes)]]
        return Plan([adapters], [word for n in range(self.nodes) for word in self.slow(n, 60)])

    def quota(self):
        return Plan([["rank", [self.rank]]], rank=self.rank, act=limit_processor)

    def stopped(self):
        return Plan([["rank", [self.rank]]], screen=ENDLESS, rank=self.rank, act=stop)

    def cut(self):
        node = ["node", list(range(self.ranks * self.a, self.ranks * (self.a + 1)))]
        seconds = 3 + 3 * random.random()
        return Plan([node], ["--cut", f"{self.a}@{seconds:.2f}"], ENDLESS)


def said_without_end(errors, ranks):
    """Who keeps the job from going on, as [kind, ranks]."""
    named = {
        ("rank", (int(n),)) for n in re.findall(r"rank (\d+) \([^)]*\) does not answer", errors)
    }
    silent = re.findall(r"node (\d+) \([^)]*\) does not answer", errors)
    alone = re.findall(r"only node (\d+) answers here: it is cut off", errors)
    for node in map(int, silent + alone):
        named.add(("node", tuple(range(ranks * node, ranks * (node + 1)))))
    return [[kind, list(who)] for kind, who in sorted(named)]


def screen(program, nodes, plan, output):
    """What the program found, and what it said."""
    ranks = ranks_of(nodes)
    command = [*cluster_words(nodes, ranks, RATE, *plan.cluster), program, *SCREEN, *plan.screen]
    command += ["-o", output] if output else []
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        found = said_without_end(done.stderr, ranks)
        return {"found": found, "verdict": "", "load": None, "code": done.returncode}, done.stderr
    found = [[culprit["kind"], culprit["ranks"]] for culprit in said["culprits"]]
    words = {"verdict": said["verdict"], "load": said["load"], "code": done.returncode}
    return {"found": found} | words, done.stdout


def attempt(program, fault, nodes, output):
    """What was planted, as [kind, ranks], what the program found, and what it said."""
    choice = Choice(nodes)
    plan = choice.plan(fault)
    thread = when_there(program, plan.rank, plan.act) if plan.act else None
    found, said = screen(program, nodes, plan, output)
    if thread:
        thread.join()
    found["found"].sort()
    return sorted(plan.planted), found, said


# The machine.


def processor_times():
    """All, and those in which no one computes; in ticks."""
    line = pathlib.Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    times = [int(word) for word in line.split()[1:9]]
    return sum(times), times[3] + times[4]


def wait_until_idle():
    """Until others have taken no more than a twentieth of the cores for two seconds."""
    while True:
        before = processor_times()
        time.sleep(2)
        every, idle = (after - b for b, after in zip(before, processor_times()))
        if idle > IDLE * every:
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


@contextlib.contextmanager
def locked(path):
    """Other users of namespaces wait."""
    with open(path or os.devnull, "w", encoding="utf-8") as lock:
        if path:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Tables.

HEAD = ("nodes", "load", "fault", "tries", "all named", "somebody healthy named", "CLEAN",
        "INCONCLUSIVE")  # fmt: skip


def table(tries):
    rows = grouped(tries, lambda one: (one["load_programs"], one["nodes"], one["fault"]))
    lines = []
    for load_, nodes, fault in sorted(rows, key=lambda key: (*key[:2], key[2] == NONE, key[2])):
        some = rows[load_, nodes, fault]
        named = sum(all(who in one["found"] for who in one["planted"]) for one in some)
        others = sum(any(who not in one["planted"] for who in one["found"]) for one in some)
        clean, inconclusive = (
            sum(one["verdict"].startswith(word) for one in some)
            for word in ("CLEAN", "INCONCLUSIVE")
        )
        named = "-" if fault == NONE else named
        words = FAULTS.get(fault, fault)
        lines.append([nodes, load_, words, len(some), named, others, clean, inconclusive])
    return markdown(HEAD, lines)


KIND_OF = {
    "matrix product": "kernel",
    "attention": "kernel",
    "triad": "kernel",
    "rate between nodes": "between",
    "latency between nodes": "latency",
}


def print_ratios(folder):
    for path in sorted(folder.glob(f"{NONE}-*.h5")):
        for name, (_, rounds) in load(str(path)).screening["measured"].items():
            for values in rounds if name != "cores taken by others" else ():
                known = values[~numpy.isnan(values)]
                middle = numpy.median(known)
                shares = middle / known if name.startswith("latency") else known / middle
                for share in shares:
                    print(f"{KIND_OF.get(name, 'inside')} {share:.4f}")


# Tries.


def wanted_tries(options, tries):
    """(number, nodes, fault) of those that are not done: faults take turns, with quiet ones in
    between."""
    done = collections.Counter(
        (one["nodes"], one["load_programs"], one["fault"] == NONE) for one in tries
    )
    for number in range(max(options.tries, options.quiet)):
        fault = options.faults[number % len(options.faults)]
        for nodes in options.nodes:
            if done[nodes, options.load, False] <= number < options.tries:
                yield number, nodes, fault
            if done[nodes, options.load, True] <= number < options.quiet:
                yield number, nodes, NONE


def one_try(options, number, nodes, fault):
    """What tries.json keeps of it."""
    output = None
    if fault not in WITHOUT_END:
        output = options.folder.resolve() / f"{fault}-{nodes}-{options.load}-{number:03}.h5"
        output.unlink(missing_ok=True)
    begin = time.time()
    planted, found, said = attempt(options.program.resolve(), fault, nodes, output)
    seconds = time.time() - begin
    good = found["found"] == planted
    print(
        f"{fault} {nodes} {number}: {planted} -> {found['found']} {found['verdict'][:12]} "
        f"{found['load'] or 0:.2f} {seconds:.1f} s{'' if good else '   <<<'}",
        flush=True,
    )
    one = {"fault": fault, "nodes": nodes, "load_programs": options.load, "planted": planted}
    one |= found | {"seconds": round(seconds, 1)}
    return one if good else one | {"said": said}


def words(text):
    return text.split(",")


def numbers(text):
    return [int(word) for word in words(text)]


def parse():
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("folder", type=pathlib.Path)
    add("--nodes", type=numbers, default=[3, 4, 6])
    add("--tries", type=int, default=20, help="with a fault, on each number of nodes")
    add("--quiet", type=int, default=40, help="without a fault")
    add("--faults", type=words, default=DAILY, help=f"of {', '.join(FAULTS)}")
    add("--load", type=int, default=0, help="programs that compute beside the tries")
    add("--until", default="23:59", help="begin no try after this time of day, UTC: 20:40")
    add("--when-idle", action="store_true", help="begin a try only where no one else computes")
    add("--program", type=pathlib.Path, default=PROGRAM)
    add("--lock", help="file to lock for each try: other users of namespaces wait")
    return parser.parse_args()


def main():
    if sys.argv[1:2] == ["ratios"]:
        return print_ratios(pathlib.Path(sys.argv[2]))
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    store = options.folder / "tries.json"
    tries = json.loads(store.read_text(encoding="utf-8")) if store.exists() else []
    with busy(options.load):
        for number, nodes, fault in list(wanted_tries(options, tries)):
            if time.strftime("%H:%M", time.gmtime()) >= options.until:
                break
            if options.when_idle:
                wait_until_idle()
            with locked(options.lock):
                tries.append(one_try(options, number, nodes, fault))
            store.write_text(json.dumps(tries, indent=1), encoding="utf-8")
    print(table(tries))


if __name__ == "__main__":
    end(main)
