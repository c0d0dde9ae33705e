# SPDX-License-Identifier: BSD-3-Clause
"""The machine at hand as a machine file for minitaw predict: runs `minitaw_kernels --deck DECK`
and, under --launch, `minitaw screen` (docs/predict.md)."""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import pandas

from .command import BadInput, Parser, output_of, write_stdout

MIB = 2**20
GIGA = 1e9
HERE = pathlib.Path(__file__).resolve().parents[2]  # the repository, or share/minitaw
BUILT = HERE / "build/host/minitaw"
PROGRAM = BUILT if BUILT.exists() else HERE.parent.parent / "bin/minitaw"
MEMORY_KERNELS = "rmsnorm|swiglu|rope|adamw|add/"
ATTENTION_KERNELS = ("cudnn", "host", "portable")  # the first one that was measured counts


def kernels_of(text):
    """Those that were measured: name, bytes, seconds, flops."""
    table = pandas.DataFrame(json.loads(text)["benchmarks"])
    table = table.reindex(columns=["name", "MiB", "B/s", "FLOP/s"]).dropna(subset=["MiB"])
    size = table["MiB"] * MIB
    seconds = size / table["B/s"]
    return table.assign(bytes=size, seconds=seconds, flops=table["FLOP/s"].fillna(0) * seconds)


def fitting(kernels, pattern):
    return kernels[kernels.name.str.match(pattern)]


def rate_of(kernels, amount, unit):
    """Of all together, `amount` being "flops" or "bytes"."""
    return f"{kernels[amount].sum() / kernels.seconds.sum() / GIGA:.4g} G{unit}"


def flop_rate(kernels):
    return rate_of(kernels, "flops", "FLOP/s")


def device_lines(kernels, precision):
    """Products over sizes a factor of two apart, and attention; nothing of what was not
    measured."""
    products = fitting(kernels, f"linear/.*/{precision}/")
    if products.empty:
        return
    points = [
        f'["{found.flops.max() / GIGA:.4g} GFLOP", "{flop_rate(found)}"]'
        for _, found in products.groupby(numpy.frexp(products.flops)[1])
    ]
    yield f"\n[device.{precision}]"
    yield f"products = [{', '.join(points)}]"
    for key, way in (("attention", "forward"), ("attention_backward", "backward")):
        for kind in ATTENTION_KERNELS:
            found = fitting(kernels, f"attention/{kind}/{precision}/{way}")
            if len(found):
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
    for name, kind, default, what in (
        ("minitaw", pathlib.Path, PROGRAM, "default: build/host/minitaw, or the installed one"),
        ("launch", str, "mpiexec -n 2", "starts a job on the machine (default: %(default)s)"),
        ("links", pathlib.Path, None, "output of minitaw screen --json, instead of a job"),
        ("kernels", pathlib.Path, None, "minitaw_kernels --benchmark_out=..., instead of DECK"),
    ):
        add(f"--{name}", metavar=name.upper(), type=kind, default=default, help=what)
    options = parser.parse_args(words)
    if not (options.deck or options.kernels):
        raise BadInput("no deck, whose sizes the kernels are measured at")
    return options


def text_of(path, measure, *words):
    return path.read_text(encoding="utf-8") if path else measure(*words)


def main(words=None):
    options = parse(words)
    kernels = text_of(options.kernels, measured_kernels, options.minitaw, options.deck)
    links = text_of(options.links, measured_links, options.launch, options.minitaw)
    source = options.deck or f"{options.links}, {options.kernels}"
    write_stdout(machine_text(json.loads(links), kernels_of(kernels), source))
