#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How long a training step of one device must take at least, from FLOPs, bytes and four rates: what
a measured step is to be compared with.

    benchmarks/step_floor.py --hidden 4096 --ffn 11008 --seq 4096 16384 65536 --products 750 --copy 3.0 \
                             --attention-forward 591 673 690 --attention-backward 474 579 581

FLOPs and bytes of the kernels are those of docs/performance.md, in bf16 with fp32 master weights,
one micro-batch of one sequence, recompute = keep-attention (all but attention and w2 computed
again). Each kernel takes the longer of its two times: products and attention compute, all others
move bytes; nothing overlaps. Rates: products and attention in TFLOP/s (attention one per length,
backward with 5 products), copy in TB/s, bytes read and written. Prints Markdown.
"""

import argparse

ELEMENT = 2  # bytes of bf16
PEAK = 989.0  # dense bf16 TFLOP/s of an H100 or H200 SXM, NVIDIA's data sheet


def block(a):
    """Weights of the matrix products of a block: of attention, then of the feed-forward network."""
    return 4 * a.hidden**2 + 3 * a.hidden * a.ffn


def products(a, tokens):
    """FLOPs of matrix products: forward, backward twice that, and again without w2; the head is not
    computed again."""
    return 2 * tokens * (a.layers * (4 * block(a) - a.hidden * a.ffn) + 3 * a.hidden * a.vocab)


def attention(a, tokens):
    """FLOPs forward (2 products) and backward (5), half of the square."""
    square = a.layers * tokens * (tokens + 1) * a.hidden
    return 2 * square, 5 * square


def moved(a, tokens):
    """Bytes of all other kernels of the step but the optimiser."""
    norms = (
        3 + 2 + 3 + 2 + 2 * 4 + 2
    )  # forward twice, again twice, backward twice, rebuilt once; a copy costs one more
    rope = 3 * 4  # forward, again, backward: queries and keys, in place
    blocks = a.layers * tokens * ((norms + rope) * a.hidden + (3 + 6) * a.ffn)
    ends = tokens * (
        2 * a.hidden + (2 + 4) * a.hidden + 2 * a.vocab + a.hidden
    )  # embedding, norm, loss, embedding backward
    return ELEMENT * (blocks + ends)


def weights(a):
    return a.layers * (block(a) + 2 * a.hidden) + 2 * a.hidden * a.vocab + a.hidden


def row(a, number, tokens):
    forward, backward = attention(a, tokens)
    times = (
        products(a, tokens) / a.products / 1e9,
        forward / a.attention_forward[number] / 1e9 + backward / a.attention_backward[number] / 1e9,
        moved(a, tokens) / a.copy / 1e9,
        (30 + 4) * weights(a) / a.copy / 1e9,
    )  # AdamW, and gradients cleared
    step = sum(times)  # ms
    model = tokens * (
        6 * (a.layers * block(a) + a.hidden * a.vocab) + 6 * a.layers * tokens * a.hidden
    )
    return (
        a.hidden,
        tokens,
        *(f"{time:.1f}" for time in times),
        f"{step:.1f}",
        f"{tokens / step * 1e3:.0f}",
        f"{model / step / PEAK / 1e7:.0f} %",
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--ffn", type=int, required=True)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--seq", type=int, nargs="+", required=True)
    for rate in ("--products", "--copy"):
        parser.add_argument(rate, type=float, required=True)
    for rate in ("--attention-forward", "--attention-backward"):
        parser.add_argument(rate, type=float, nargs="+", required=True)
    a = parser.parse_args()
    if not len(a.seq) == len(a.attention_forward) == len(a.attention_backward):
        parser.error("give a rate of attention, forward and backward, for each length")
    titles = (
        "H",
        "S",
        "products, ms",
        "attention, ms",
        "other kernels, ms",
        "AdamW, ms",
        "step, ms",
        "token/s",
        "MFU, causal",
    )
    lines = [
        titles,
        ["---"] * len(titles),
        *(map(str, row(a, number, tokens)) for number, tokens in enumerate(a.seq)),
    ]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines))


main()
