#!/usr/bin/env python3
"""Computes training steps with PyTorch in float64 and writes what the tests compare miniTaw with:
README.md says how.

Nothing here is shared with miniTaw: the model is written with PyTorch operators (rotation by
complex numbers, softmax of full score matrices, torch.optim.AdamW), the random numbers with integers of Python.

No case has one token per sequence: then the gradient of queries and keys is zero but for rounding,
and AdamW turns rounding of any size into steps of the learning rate.

steps.golden begins with lines of text, one for each array: its name and how many values it has. After
the line "values" come all of them, float64, little endian, in this order. Of each case there are
    CASE/losses             one per step: mean cross-entropy over all tokens of the step
    CASE/gradient.TENSOR    of the first step
    CASE/weights.TENSOR     after the last step
Of a tensor there are: of a gain all entries, of a matrix those whose row and column add up to a
multiple of 3 (gradients) or 11 (weights); then the sum over all entries i, kept or not, of entry i
times cos(i).
"""

from collections import namedtuple
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

SIZES = "layers hidden heads kv_heads head_dim ffn vocab seq micro_batch seed"
Case = namedtuple("Case", f"{SIZES} tied", defaults=[False])
CASES = {
    "grouped": Case(3, 24, 6, 2, 4, 7, 11, 19, 2, 7),
    "two_tokens": Case(1, 20, 5, 5, 4, 11, 13, 2, 4, 2**40 + 5),
    "wide_heads": Case(2, 20, 6, 3, 10, 9, 13, 17, 1, 3),  # 60 columns of a hidden state of 20
    "tied": Case(2, 20, 5, 5, 4, 11, 13, 17, 3, 9, tied=True),
}
STEPS, MICRO_BATCHES = 3, 2
# of AdamW: fp32 values, as miniTaw stores them
RATE, *BETAS, EPSILON, DECAY = np.float32([1e-3, 0.9, 0.95, 1e-8, 0.1]).tolist()
ROLES = ["norm1", "wqkv", "wo", "norm2", "w13", "w2", "embedding", "norm", "head"]
MASK = 2**32 - 1


def random_words(count, second, third, fourth, seed, stream):
    """Philox4x32-10 (Salmon et al. 2011) of the counters (0, second, third, fourth), (1, second,
    third, fourth) and so on."""
    words = []
    for first in range((count + 3) // 4):
        c, key = [first, second, third, fourth], [seed & MASK, (seed >> 32) ^ stream]
        for _ in range(10):
            p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [(q >> 32) ^ c[1] ^ key[0], q & MASK, (p >> 32) ^ c[3] ^ key[1], p & MASK]
            key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
        words += c
    return words[:count]


def initial(role, layer, shape, case):
    words = random_words(int(np.prod(shape)), 0, ROLES.index(role), layer & MASK, case.seed, 0)
    unit = (np.array(words) >> 8) * 2.0**-23 - 1.0
    center, amplitude = 0.0, np.sqrt(3.0)
    if role.startswith("norm"):
        center, amplitude = 1.0, 0.1
    elif role != "embedding" or case.tied:
        depth = 2.0 * case.layers if role in ("wo", "w2") else 1.0
        amplitude = np.sqrt(3.0 / (depth * shape[1]))
    values = np.float32(center + np.float64(np.float32(amplitude)) * unit)
    return torch.tensor(np.float64(values).reshape(shape), requires_grad=True)


def make_parameters(case):
    h, ffn = case.hidden, case.ffn
    width, qkv = case.heads * case.head_dim, (case.heads + 2 * case.kv_heads) * case.head_dim
    blocks = [(h,), (qkv, h), (h, width), (h,), (2 * ffn, h), (h, ffn)]
    ends = [(case.vocab, h), (h,), (case.vocab, h)]
    parameters = {
        f"layers.{layer}.{role}": initial(role, layer, shape, case)
        for layer in range(case.layers)
        for role, shape in zip(ROLES, blocks)
    }
    return parameters | {
        role: initial(role, -1, shape, case)
        for role, shape in zip(ROLES[6:], ends[:2] if case.tied else ends)
    }


def micro_batch(case, step, index):
    """Tokens and targets [B, S]: each token is the one before plus 1 to 4, at random, modulo V."""
    first = index * case.micro_batch
    words = np.array(
        [
            random_words(case.seq + 1, sequence, 0, step, case.seed, 0x746F6B73)
            for sequence in range(first, first + case.micro_batch)
        ]
    )
    words[:, 1:] = 1 + (words[:, 1:] >> 30)
    rows = torch.tensor(words.cumsum(1) % case.vocab)
    return rows[:, :-1], rows[:, 1:]


def rms_norm(x, gain):
    return F.rms_norm(x, gain.shape, gain, 1e-5)


def rotate(x):
    """x [B, S, heads, d]: pairs (2i, 2i+1) as complex numbers, times exp(i position theta_i)."""
    _, seq, _, d = x.shape
    theta = 10000.0 ** (-torch.arange(0.0, d, 2) / d)
    angle = torch.outer(torch.arange(0.0, seq), theta)
    turn = torch.polar(torch.ones_like(angle), angle)[:, None, :]
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2)


def attention(qkv, case):
    heads, kv_heads, d = case.heads, case.kv_heads, case.head_dim
    q, k, v = qkv.unflatten(-1, (-1, d)).split([heads, kv_heads, kv_heads], dim=2)
    q, k, v = (
        part.repeat_interleave(heads // part.shape[2], dim=2).transpose(1, 2)
        for part in (rotate(q), rotate(k), v)
    )
    hidden = torch.full((case.seq, case.seq), float("-inf")).triu(1)
    scores = q @ k.transpose(-1, -2) / d**0.5 + hidden
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


def summed_loss(p, case, tokens, targets):
    x = p["embedding"][tokens]
    for layer in range(case.layers):
        w = {role: p[f"layers.{layer}.{role}"] for role in ROLES[:6]}
        x = x + attention(rms_norm(x, w["norm1"]) @ w["wqkv"].T, case) @ w["wo"].T
        gate, up = (rms_norm(x, w["norm2"]) @ w["w13"].T).chunk(2, dim=-1)
        x = x + (F.silu(gate) * up) @ w["w2"].T
    logits = rms_norm(x, p["norm"]) @ p["embedding" if case.tied else "head"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def digest(tensor, every):
    values = tensor.detach().numpy()
    kept = np.indices(values.shape).sum(0) % (every if values.ndim > 1 else 1) == 0
    return np.append(values[kept], np.dot(values.flatten(), np.cos(np.arange(values.size))))


def train(case):
    parameters = make_parameters(case)
    groups = [  # gains do not decay
        dict(params=[p for p in parameters.values() if p.dim() == n], weight_decay=DECAY * (n - 1))
        for n in (2, 1)
    ]
    optimiser = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON)
    arrays = {"losses": np.zeros(STEPS)}
    tokens_of_step = case.seq * case.micro_batch * MICRO_BATCHES
    for step in range(STEPS):
        optimiser.zero_grad()
        batches = [micro_batch(case, step, index) for index in range(MICRO_BATCHES)]
        loss = sum(summed_loss(parameters, case, *batch) for batch in batches) / tokens_of_step
        loss.backward()
        arrays["losses"][step] = loss.item()
        if step == 0:
            arrays |= {f"gradient.{name}": digest(p.grad, 3) for name, p in parameters.items()}
        optimiser.step()
    return arrays | {f"weights.{name}": digest(p, 11) for name, p in parameters.items()}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    header, data = "", b""
    for case_name, settings in CASES.items():
        for array_name, array in train(settings).items():
            header += f"{case_name}/{array_name} {array.size}\n"
            data += array.astype("<f8").tobytes()
    Path(__file__).with_name("steps.golden").write_bytes(header.encode() + b"values\n" + data)
