# SPDX-License-Identifier: BSD-3-Clause
"""The options of scripts/cluster: nodes, links and faults (docs/cluster.md)."""

import argparse
import re

from minitaw.command import BadInput, Parser
from minitaw.numbers import BITS

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
MTU = 9000  # bytes of a packet: a jumbo frame
MOST_NODES = 200  # of the address of a network; and ranks on each
DESCRIPTION = """\
Runs an MPI program on nodes that are namespaces of this machine, each with one adapter of this
rate."""


def quantity(units, kind, example):
    """The type of an option: a number with a unit."""

    def parse(text):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)([a-z]+)", text.lower())
        if not match or match[2] not in units or float(match[1]) == 0:
            names = ", ".join(units)
            raise argparse.ArgumentTypeError(
                f"'{text}' is no {kind}: write a number with {names}, such as {example}"
            )
        return float(match[1]) * units[match[2]]

    return parse


def rate(example):
    return quantity(dict(reversed(BITS.items())), "rate", example)


def time(example):
    return quantity(SECONDS, "time", example)


def at_node(separator, value, example):
    """NODE, or two nodes as A-B, and a value after the separator: a tuple of the nodes, and the
    value."""

    def parse(text):
        match = re.fullmatch(rf"([0-9]+)(?:-([0-9]+))?{separator}(.+)", text)
        if not match or (match[2] is not None) != ("-" in example):
            raise argparse.ArgumentTypeError(f"'{text}' is not of the form {example}")
        nodes = tuple(int(node) for node in match.groups()[:2] if node is not None)
        return nodes, value(match[3])

    return parse


def add_links(add):
    add("--nodes", type=int, required=True)
    add("--ranks-per-node", type=int, required=True)
    add(
        "--rate",
        type=rate("100mbit"),
        required=True,
        help="of each node's adapter, each direction: 100mbit, 1gbit",
    )
    add(
        "--latency",
        type=time("0.2ms"),
        default=0.0,
        help="added to the way from node to node: 50us, 0.2ms (default: none)",
    )


def add_faults(add):
    add(
        "--cut",
        type=at_node("@", float, "1@20"),
        metavar="NODE@SECONDS",
        help="takes the adapter of a node down so long after the start",
    )
    add(
        "--slow",
        type=at_node("=", rate("30mbit"), "1=30mbit"),
        action="append",
        default=[],
        metavar="NODE=RATE",
        help="the adapter of a node has another rate; may be given for several nodes",
    )
    add(
        "--slow-pair",
        type=at_node("=", rate("30mbit"), "0-1=30mbit"),
        metavar="A-B=RATE",
        help="what passes between two nodes, in each direction, has another rate",
    )


def faults_of(options):
    """(name, (nodes, value)) of those that are asked for."""
    yield from (("slow", fault) for fault in options.slow)
    for name in ("slow_pair", "cut"):
        if fault := getattr(options, name):
            yield name, fault


def check(options):
    if not options.program:
        raise BadInput(
            "no program: write -- and the program after the options "
            "(scripts/cluster --help lists all options)"
        )
    counts = options.nodes, options.ranks_per_node
    if not all(1 <= count <= MOST_NODES for count in counts):
        raise BadInput(f"--nodes and --ranks-per-node are numbers from 1 to {MOST_NODES}")
    for name, (nodes, _) in faults_of(options):
        if max(nodes) >= options.nodes or len(set(nodes)) < len(nodes):
            option = name.replace("_", "-")
            raise BadInput(
                f"--{option}: there are no such nodes: {options.nodes} are counted from 0"
            )


def parse(words):
    parser = Parser(
        prog="scripts/cluster",
        usage="scripts/cluster --nodes N --ranks-per-node R --rate RATE [OPTION ...] -- "
        "PROGRAM [ARGUMENT ...]",
        description=DESCRIPTION,
    )
    add_links(parser.add_argument)
    add_faults(parser.add_argument)
    parser.add_argument(
        "--counters",
        metavar="FILE.json",
        help="writes at the end what the kernel counted on each node's adapter",
    )
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    options.program = words[at + 1 :]
    check(options)
    # A program takes the place of the bridge.
    options.switch = bool(options.latency > 0 or options.slow_pair)
    return options


def decimal(number):
    """Without an exponent, which a record does not take."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def links_text(options):
    """For the record of the ranks (src/record): words NAME=VALUE, or NAME=NODES:VALUE of faults."""
    words = [
        f"nodes={options.nodes}",
        f"ranks_per_node={options.ranks_per_node}",
        f"rate={decimal(options.rate / 1e6)}mbit",
        f"latency={decimal(options.latency * 1e3)}ms",
        f"mtu={MTU}",
    ]
    for name, (nodes, value) in faults_of(options):
        text = f"{decimal(value)}s" if name == "cut" else f"{decimal(value / 1e6)}mbit"
        words.append(f"{name}={'-'.join(map(str, nodes))}:{text}")
    return " ".join(words)
