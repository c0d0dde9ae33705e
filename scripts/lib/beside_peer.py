#!/usr/bin/env python3
"""The training steps of scripts/gpu-speed and, where it ran, of the peer on the same shapes, as a Markdown table.

Called with the folder that holds single-*.json (minitaw show --json) and peer.jsonl. MFU: model FLOP/s, causal, of 989 TFLOP/s, the
dense bf16 rate in NVIDIA's data sheet of the H100 and H200 SXM.
"""

import json
import pathlib
import sys

PEAK = 989.0
TITLES = ("H", "S", "token/s", "MFU, causal", "peak GiB", "peer, token/s", "MFU, causal", "ratio")


def lines_of(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def row(case, peers):
    """One line; the peer's cells are empty where it has no result for this shape."""
    rate, shape = case["tokens_per_s [token/s]"], (case["hidden"], case["seq [token]"])
    yield from (*shape, f"{rate:.0f}", f"{100 * case['tflops_causal [TFLOP/s]'] / PEAK:.1f} %", f"{case['memory_measured [B]'] / 2**30:.1f}")
    peer = peers.get(shape)
    yield from (f"{peer['tokens_per_s']:.0f}", f"{100 * peer['tflops_causal'] / PEAK:.1f} %", f"{rate / peer['tokens_per_s']:.2f}") if peer else "---"


def main():
    folder = pathlib.Path(sys.argv[1])
    cases = [case for file in folder.glob("single-*.json") for case in json.loads(file.read_text(encoding="utf-8")) if case["status"] == "ok"]
    peers = {(found["hidden"], found["seq"]): found for found in lines_of(folder / "peer.jsonl")}
    cases.sort(key=lambda case: (-case["hidden"], case["seq [token]"]))
    for line in (TITLES, ["---"] * len(TITLES), *(map(str, row(case, peers)) for case in cases)):
        print("| " + " | ".join(line) + " |")


main()
