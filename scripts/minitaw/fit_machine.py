# SPDX-License-Identifier: BSD-3-Clause
"""The machine at hand as a machine file for minitaw predict: runs `minitaw_kernels --deck DECK`
and, under --launch, `minitaw topo` (docs/predict.md)."""

import json
import pathlib
import re
import sys
import tempfile

from .command import BadInput, Parser, output_of, write_stdout

HERE = (
    pathlib.Path(__file__).resolve().parents[2]
)  # the repository, or share/minitaw of an installation
PROGRAM = (
    HERE / "build/host/minitaw"
    if (HERE / "build/host/minitaw").exists()
    else HERE.parent.parent / "bin/minitaw"
)


def totals(kernels, pattern):
    """(FLOPs, bytes, seconds) of each kernel whose name fits."""
    fitting = [
        (kernel, kernel["MiB"] * 2**20 / kernel["B/s"])
        for kernel in kernels
        if re.match(pattern, kernel["name"]) and "MiB" in kernel
    ]
    return [
        (kernel.get("FLOP/s", 0) * seconds, kernel["MiB"] * 2**20, seconds)
        for kernel, seconds in fitting
    ]


def rate_of(found, which, unit):
    return f"{sum(f[which] for f in found) / sum(f[2] for f in found) / 1e9:.4g} G{unit}"


def machine_text(links, kernels, source):
    if len(set(links["groups"])) > 1:
        raise BadInput(
            f"groups of {links['groups']} ranks: a machine file has as many ranks in each node"
        )
    lines = [
        f"# Measured: {source}.",
        f"nodes = {len(links['groups'])}",
        f"ranks_per_node = {links['groups'][0]}",
        "\n[device]",
        f'memory_rate = "{rate_of(totals(kernels, "rmsnorm|swiglu|rope|adamw|add/"), 1, "B/s")}"',
    ]
    for precision in ("fp32", "bf16"):
        curve = {}  # products over sizes a factor of two apart
        for product in sorted(totals(kernels, f"linear/.*/{precision}/")):
            curve.setdefault(int(product[0]).bit_length(), []).append(product)
        if not curve:
            continue
        points = ", ".join(
            f'["{max(f[0] for f in found) / 1e9:.4g} GFLOP", "{rate_of(found, 0, "FLOP/s")}"]'
            for found in curve.values()
        )
        lines += [f"\n[device.{precision}]", f"products = [{points}]"]
        for key, way in (("attention", "forward"), ("attention_backward", "backward")):
            found = [
                totals(kernels, f"attention/{kind}/{precision}/{way}")
                for kind in ("cudnn", "host", "portable")
            ]
            lines += (
                [f'{key} = "{rate_of(next(filter(None, found)), 0, "FLOP/s")}"']
                if any(found)
                else []
            )
    if inside := links["inside"]:
        lines += [
            "\n[inside]",
            'kind = "switch"',
            f'rate = "{inside["shared_bytes_per_s"] / 1e9:.4g} GB/s"',
            f'latency = "{inside["latency_s"] * 1e6:.4g} us"',
        ]
    if between := links["between"]:
        lines += [
            "\n[between]",
            f"adapters = {links['adapters']}",
            f'rate = "{between["both_bytes_per_s"] / links["adapters"] / 1e9:.4g} GB/s"',
            f'latency = "{between["latency_s"] * 1e6:.4g} us"',
        ]
    return "\n".join(lines) + "\n"


def main(words=None):
    parser = Parser(prog="fit-machine", description=__doc__)
    parser.add_argument(
        "deck", metavar="DECK", nargs="?", help="the kernels are measured at its sizes"
    )
    parser.add_argument(
        "--minitaw",
        metavar="PROGRAM",
        type=pathlib.Path,
        default=PROGRAM,
        help="default: build/host/minitaw, or the installed one",
    )
    parser.add_argument(
        "--launch",
        metavar="WORDS",
        default="mpiexec -n 2",
        help="starts a job on the machine (default: %(default)s)",
    )
    parser.add_argument(
        "--links",
        metavar="FILE.json",
        type=pathlib.Path,
        help="output of minitaw topo --json, instead of a job",
    )
    parser.add_argument(
        "--kernels",
        metavar="FILE.json",
        type=pathlib.Path,
        help="minitaw_kernels --benchmark_out=FILE.json, instead of DECK",
    )
    options = parser.parse_args(words)
    if not (options.deck or options.kernels):
        raise BadInput("no deck, whose sizes the kernels are measured at")
    with tempfile.TemporaryDirectory() as folder:
        kernels = options.kernels or pathlib.Path(folder, "kernels.json")
        if not options.kernels:
            print(
                output_of(
                    next(options.minitaw.parent.glob("**/minitaw_kernels"), "minitaw_kernels"),
                    "--deck",
                    options.deck,
                    f"--benchmark_out={kernels}",
                ),
                file=sys.stderr,
            )
        kernels = json.loads(kernels.read_text(encoding="utf-8"))["benchmarks"]
    links = (
        options.links.read_text(encoding="utf-8")
        if options.links
        else output_of(*options.launch.split(), options.minitaw, "topo", "--json")
    )
    write_stdout(
        machine_text(
            json.loads(links), kernels, options.deck or f"{options.links}, {options.kernels}"
        )
    )
