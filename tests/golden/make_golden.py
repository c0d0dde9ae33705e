#!/usr/bin/env python3
"""Computes training steps with PyTorch in float64 and writes what the tests compare miniTaw with:
README.md says how.

Nothing here is shared with miniTaw: the model is written with PyTorch operators (rotation by
complex numbers, softmax of full score matrices, torch.optim.AdamW), the random numbers with numpy.

No case has one token per sequence: then the gradient of queries and keys is zero but for rounding,
and AdamW turns rounding of any size into steps of the learning rate.

steps.golden begins with lines of text, one for each array: its name and how many values it has. After
the line "values" come all of them, float64, little endian, in this order. Of each case there are
    CASE/losses             one per step: mean cross-entropy over all tokens of the step
    CASE/gradient.TENSOR    of the first step
    CASE/weights.TENSOR     after the last step
Of a tensor there are: of a gain all entries, of a matrix those whose row and column add up to a
multiple of KEPT; then the sum over all entries i, kept or not, of entry i times cos(i).
"""

from collections import namedtuple
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

NAMES = "layers hidden heads kv_heads ffn vocab seq micro_batch micro_batches steps seed"
Case = namedtuple("Case", NAMES)
CASES = {
    "grouped": Case(3, 24, 6, 2, 7, 11, 19, 2, 2, 3, 7),
    "two_tokens": Case(1, 20, 5, 5, 11, 13, 2, 4, 2, 3, 2**40 + 5),
}
KEPT = {"gradient": 3, "weights": 11}
# fp32 values, as miniTaw stores them
LEARNING_RATE, BETA1, BETA2, EPSILON, DECAY = (
    float(np.float32(value)) for value in (1e-3, 0.9, 0.95, 1e-8, 0.1)
)
ROLES = ["norm1", "wqkv", "wo", "norm2", "w13", "w2", "embedding", "norm", "head"]
WEIGHTS, TOKENS = 0, 0x746F6B73


def philox(counter, seed, stream):
    """Philox4x32-10 (Salmon et al. 2011). counter: four integers or arrays of them; returns uint64
    [n, 4]."""
    c = [np.atleast_1d(np.asarray(word, dtype=np.uint64)) for word in counter]
    c = list(np.broadcast_arrays(*c))
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    key = [seed & 0xFFFFFFFF, (seed >> 32) ^ stream]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p1 >> shift) ^ c[1] ^ np.uint64(key[0]),
            p1 & mask,
            (p0 >> shift) ^ c[3] ^ np.uint64(key[1]),
            p0 & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=1)


def initial(role, layer, shape, case):
    count = int(np.prod(shape))
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    counter = (
        blocks & np.uint64(0xFFFFFFFF),
        blocks >> np.uint64(32),
        ROLES.index(role),
        layer % 2**32,
    )
    words = philox(counter, case.seed, WEIGHTS).reshape(-1)[:count]
    unit = (words >> np.uint64(8)).astype(np.float64) * 2.0**-23 - 1.0
    if role.startswith("norm"):
        center, amplitude = 1.0, np.float32(0.1)
    elif role == "embedding":
        center, amplitude = 0.0, np.float32(np.sqrt(3.0))
    else:
        depth = 2.0 * case.layers if role in ("wo", "w2") else 1.0
        center, amplitude = 0.0, np.float32(np.sqrt(3.0 / (depth * shape[1])))
    values = (center + np.float64(amplitude) * unit).astype(np.float32)
    return torch.tensor(values.astype(np.float64).reshape(shape), requires_grad=True)


def make_parameters(case):
    h, d, ffn = case.hidden, case.hidden // case.heads, case.ffn
    of_block = dict(
        norm1=(h,),
        wqkv=((case.heads + 2 * case.kv_heads) * d, h),
        wo=(h, h),
        norm2=(h,),
        w13=(2 * ffn, h),
        w2=(h, ffn),
    )
    of_ends = dict(embedding=(case.vocab, h), norm=(h,), head=(case.vocab, h))
    parameters = {
        f"layers.{layer}.{role}": initial(role, layer, shape, case)
        for layer in range(case.layers)
        for role, shape in of_block.items()
    }
    parameters |= {role: initial(role, -1, shape, case) for role, shape in of_ends.items()}
    return parameters


def micro_batch(case, step, index):
    """Tokens and targets [B, S]: each token is the one before plus 1 to 4, at random, modulo V."""
    length = case.seq + 1
    rows = []
    for sequence in range(case.micro_batch):
        counter = (np.arange((length + 3) // 4), index * case.micro_batch + sequence, 0, step)
        words = philox(counter, case.seed, TOKENS).reshape(-1)
        row = [int(words[0]) % case.vocab]
        for word in words[1:length]:
            row.append((row[-1] + 1 + (int(word) >> 30)) % case.vocab)
        rows.append(row)
    rows = torch.tensor(rows)
    return rows[:, :-1], rows[:, 1:]


def rms_norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain


def rotate(x):
    """x [B, S, heads, d]: pairs (2i, 2i+1) as complex numbers, times exp(i position theta_i)."""
    _, seq, _, d = x.shape
    theta = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(torch.arange(seq, dtype=torch.float64), theta)
    turn = torch.polar(torch.ones_like(angle), angle)[None, :, None, :]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2)


def attention(qkv, case):
    heads, kv_heads, d = case.heads, case.kv_heads, case.hidden // case.heads
    batch, seq, _ = qkv.shape
    parts = qkv.reshape(batch, seq, -1, d).split([heads, kv_heads, kv_heads], dim=2)
    q, k, v = rotate(parts[0]), rotate(parts[1]), parts[2]
    q, k, v = (
        part.repeat_interleave(heads // part.shape[2], dim=2).transpose(1, 2) for part in (q, k, v)
    )
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) / d**0.5).masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, heads * d)


def summed_loss(p, case, tokens, targets):
    x = p["embedding"][tokens]
    for layer in range(case.layers):
        w = {role: p[f"layers.{layer}.{role}"] for role in ROLES[:6]}
        x = x + attention(rms_norm(x, w["norm1"]) @ w["wqkv"].T, case) @ w["wo"].T
        gate, up = (rms_norm(x, w["norm2"]) @ w["w13"].T).chunk(2, dim=-1)
        x = x + (F.silu(gate) * up) @ w["w2"].T
    logits = rms_norm(x, p["norm"]) @ p["head"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def train(case):
    parameters = make_parameters(case)
    groups = [
        dict(params=[p for p in parameters.values() if p.dim() == dimensions], weight_decay=decay)
        for dimensions, decay in ((2, DECAY), (1, 0.0))
    ]
    optimiser = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(BETA1, BETA2), eps=EPSILON)
    losses, gradients = [], None
    tokens_of_step = case.seq * case.micro_batch * case.micro_batches
    for step in range(case.steps):
        optimiser.zero_grad(set_to_none=True)
        batches = [micro_batch(case, step, index) for index in range(case.micro_batches)]
        loss = sum(summed_loss(parameters, case, *batch) for batch in batches) / tokens_of_step
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in parameters.items()}
        optimiser.step()
    return losses, gradients, parameters


def digest(tensor, every):
    values = tensor.detach().numpy()
    if values.ndim == 1:
        kept = values
    else:
        rows, columns = np.indices(values.shape)
        kept = values[(rows + columns) % every == 0]
    return np.append(kept, np.dot(values.flatten(), np.cos(np.arange(values.size))))


def arrays_of(case):
    losses, gradients, weights = train(case)
    arrays = {"losses": np.array(losses)}
    for kind, tensors in dict(gradient=gradients, weights=weights).items():
        for name, tensor in tensors.items():
            arrays[f"{kind}.{name}"] = digest(tensor, KEPT[kind])
    return arrays


if __name__ == "__main__":
    known = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox((0, 0, 0, 0), 0, 0)[0].tolist() == known
    header, data = "", b""
    for case_name, settings in CASES.items():
        for array_name, array in arrays_of(settings).items():
            header += f"{case_name}/{array_name} {array.size}\n"
            data += array.astype("<f8").tobytes()
    path = Path(__file__).resolve().parent / "steps.golden"
    path.write_bytes(header.encode() + b"values\n" + data)
