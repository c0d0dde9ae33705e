#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How long a training step of one device must take at least, from FLOPs, bytes and four rates: what
a measured step is to be compared with.

    benchmarks/results/step_floor.py --hidden 4096 --ffn 11008 --seq 4096 16384 65536
        --products 750 --copy 3.0 --attention-forward 591 673 690 --attention-backward 474 579 581

FLOPs and bytes of the kernels are those of docs/performance.md, in bf16 with fp32 master weights,
one micro-batch of one sequence, recompute = keep-attention (all but attention and w2 computed
again). Each kernel takes the longer of its two times: products and attention compute, all others
move bytes; nothing overlaps. Rates: products and attention in TFLOP/s (attention one per length,
backward with 5 products), copy in TB/s, bytes read and written. Prints Markdown.
"""

from pages import end, markdown, parser_of

ELEMENT = 2  # bytes of bf16
PEAK = 989.0  # dense bf16 TFLOP/s of an H100 or H200 SXM, NVIDIA's data sheet
TERA_MS = 1e9  # of a TFLOP/s or TB/s in a millisecond
# Bytes of a weight that AdamW reads and writes, and those of clearing its gradient.
ADAMW, CLEARING = 30, 4
# Tensors that the kernels of a block read and write, each of the size of the hidden state.
NORMS = 3 + 2 + 3 + 2 + 2 * 4 + 2  # forward twice, again twice, backward twice, rebuilt once; a
# copy costs one more
ROPE = 3 * 4  # forward, again, backward: queries and keys, in place
SWIGLU = 3 + 6  # of the feed-forward width
# Of the ends: embedding, norm, embedding backward; the loss reads and writes logits.
ENDS, LOSS = 2 + (2 + 4) + 1, 2
HEAD = ("H", "S", "products, ms", "attention, ms", "other kernels, ms", "AdamW, ms", "step, ms",
        "token/s", "MFU, causal")  # fmt: skip


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
    blocks = a.layers * tokens * ((NORMS + ROPE) * a.hidden + SWIGLU * a.ffn)
    ends = tokens * (ENDS * a.hidden + LOSS * a.vocab)
    return ELEMENT * (blocks + ends)


def weights(a):
    return a.layers * (block(a) + 2 * a.hidden) + 2 * a.hidden * a.vocab + a.hidden


def model_flops(a, tokens):
    """Of a step, as MFU counts them."""
    square = a.layers * tokens * a.hidden
    return 6 * tokens * (a.layers * block(a) + a.hidden * a.vocab + square)


def row(a, tokens, forward_rate, backward_rate):
    forward, backward = attention(a, tokens)
    times = [
        products(a, tokens) / a.products,
        forward / forward_rate + backward / backward_rate,
        moved(a, tokens) / a.copy,
        (ADAMW + CLEARING) * weights(a) / a.copy,
    ]
    times = [time / TERA_MS for time in times]
    step = sum(times)  # ms
    share = model_flops(a, tokens) / step / PEAK / TERA_MS
    return (
        a.hidden,
        tokens,
        *(f"{time:.1f}" for time in times),
        f"{step:.1f}",
        f"{tokens / step * 1e3:.0f}",
        f"{100 * share:.0f} %",
    )


def main():
    parser = parser_of(__doc__)
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
    lengths = zip(a.seq, a.attention_forward, a.attention_backward)
    print(markdown(HEAD, [row(a, *length) for length in lengths]))


if __name__ == "__main__":
    end(main)
