# SPDX-License-Identifier: BSD-3-Clause
"""The machine at hand as a machine file for minitaw predict: runs `minitaw_kernels --deck DECK`
and, under --launch, `minitaw screen` (docs/predict.md)."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from .command import BadInput, Parser, output_of, write_stdout

MIB = 2**20
GIGA = 1e9
HERE = pathlib.Path(__file__).resolve().parents[2]  # the repository, or share/minitaw
BUILT = HERE / "build/host/minitaw"
PROGRAM = BUILT if BUILT.exists() else HERE.parent.parent / "bin/minitaw"
MEMORY_KERNELS = "rmsnorm|swiglu|rope|adamw|add/"
ATTENTION_KERNELS = ("cudnn", "host", "portable")  # the first one that was measured counts


@dataclass(order=True)
class Kernel:
    """A kernel that was measured, or several together."""

    flops: float
    bytes: float
    seconds: float


def fitting(kernels, pattern):
    """Those whose name fits."""
    found = []
    for kernel in kernels:
        if re.match(pattern, kernel["name"]) and "MiB" in kernel:
            size = kernel["MiB"] * MIB
            seconds = size / kernel["B/s"]
            found.append(Kernel(kernel.get("FLOP/s", 0) * seconds, size, seconds))
    return found


def rate_of(found, amount, unit):
    """Of all together, `amount` being "flops" or "bytes"."""
    total = sum(getattr(kernel, amount) for kernel in found)
    return f"{total / sum(kernel.seconds for kernel in found) / GIGA:.4g} G{unit}"


def flop_rate(found):
    return rate_of(found, "flops", "FLOP/s")


def device_lines(kernels, precision):
    """Products over sizes a factor of two apart, and attention; nothing of what was not
    measured."""
    curve = {}
    for product in sorted(fitting(kernels, f"linear/.*/{precision}/")):
        curve.setdefault(int(product.flops).bit_length(), []).append(product)
    if not curve:
        return
    points = []
    for found in curve.values():
        largest = max(kernel.flops for kernel in found) / GIGA
        points.append(f'["{largest:.4g} GFLOP", "{flop_rate(found)}"]')
    yield f"\n[device.{precision}]"
    yield f"products = [{', '.join(points)}]"
    for key, way in (("attention", "forward"), ("attention_backward", "backward")):
        for kind in ATTENTION_KERNELS:
            if found := fitting(kernels, f"attention/{kind}/{precision}/{way}"):
                yield f'{key} = "{flop_rate(found)}"'
                break


def link_lines(links):
    measured = {quantity["name"]: quantity["median"] for quantity in links["quantities"]}
    if inside := measured.get("rate inside the node"):
        yield "\n[inside]"
        yield 'kind = "switch"'
        yield f'rate = "{inside / GIGA:.4g} GB/s"'
    if between := measured.get("rate between nodes"):
        yield "\n[between]"
        yield f"adapters = {links['adapters']}"
        yield f'rate = "{between / GIGA:.4g} GB/s"'
        yield f'latency = "{measured["latency between nodes"] * 1e6:.4g} us"'


def machine_text(links, kernels, source):
    nodes = links["nodes"]
    if len(set(nodes)) > 1:
        raise BadInput(f"nodes of {nodes} ranks: a machine file has as many ranks in each node")
    memory = rate_of(fitting(kernels, MEMORY_KERNELS), "bytes", "B/s")
    lines = [
        f"# Measured: {source}.",
        f"nodes = {len(nodes)}",
        f"ranks_per_node = {nodes[0]}",
        "\n[device]",
        f'memory_rate = "{memory}"',
        *device_lines(kernels, "fp32"),
        *device_lines(kernels, "bf16"),
        *link_lines(links),
    ]
    return "\n".join(lines) + "\n"


def measured_links(launch, program):
    """Also where the verdict is that something is slow: medians tell of the others."""
    words = [*launch.split(), program, "screen", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise BadInput(f"{' '.join(map(str, words))} failed: {done.stderr.strip()}")
    return done.stdout


def measured_kernels(program, deck):
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "kernels.json")
        kernels = next(program.parent.glob("**/minitaw_kernels"), "minitaw_kernels")
        said = output_of(kernels, "--deck", deck, f"--benchmark_out={output}")
        print(said, file=sys.stderr)
        return output.read_text(encoding="utf-8")


def parse(words):
    parser = Parser(prog="fit-machine", description=__doc__)
    add = parser.add_argument
    add("deck", metavar="DECK", nargs="?", help="the kernels are measured at its sizes")
    add(
        "--minitaw",
        metavar="PROGRAM",
        type=pathlib.Path,
        default=PROGRAM,
        help="default: build/host/minitaw, or the installed one",
    )
    add(
        "--launch",
        metavar="WORDS",
        default="mpiexec -n 2",
        help="starts a job on the machine (default: %(default)s)",
    )
    add(
        "--links",
        metavar="FILE.json",
        type=pathlib.Path,
        help="output of minitaw screen --json, instead of a job",
    )
    add(
        "--kernels",
        metavar="FILE.json",
        type=pathlib.Path,
        help="minitaw_kernels --benchmark_out=FILE.json, instead of DECK",
    )
    options = parser.parse_args(words)
    if not (options.deck or options.kernels):
        raise BadInput("no deck, whose sizes the kernels are measured at")
    return options


def main(words=None):
    options = parse(words)
    if options.kernels:
        kernels = options.kernels.read_text(encoding="utf-8")
    else:
        kernels = measured_kernels(options.minitaw, options.deck)
    kernels = json.loads(kernels)["benchmarks"]
    if options.links:
        links = options.links.read_text(encoding="utf-8")
    else:
        links = measured_links(options.launch, options.minitaw)
    source = options.deck or f"{options.links}, {options.kernels}"
    write_stdout(machine_text(json.loads(links), kernels, source))
