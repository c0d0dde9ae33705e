#!/usr/bin/env python3
"""Computes training steps with PyTorch in float64 and writes what the tests compare miniTaw with:
README.md says how.

Nothing here is shared with miniTaw: the model is written with PyTorch operators (rotation by
complex numbers, softmax of full score matrices, torch.optim.AdamW), the random numbers with numpy.

No case has one token per sequence: then the gradient of queries and keys is zero but for rounding,
and AdamW turns rounding of any size into steps of the learning rate.

Each line of a file is a name, a colon and values (test_golden.cpp has the cases' sizes, too):
    losses            one per step: mean cross-entropy over all tokens of the step
    gradient TENSOR   of the first step
    weights TENSOR    after the last step, every STRIDE-th element
"""

import os

import numpy as np
import torch
import torch.nn.functional as F

CASES = {
    "grouped": dict(
        layers=3,
        hidden=24,
        heads=6,
        kv_heads=2,
        ffn=13,
        vocab=33,
        seq=21,
        micro_batch=2,
        micro_batches=2,
        steps=3,
        seed=7,
    ),
    "two_tokens": dict(
        layers=1,
        hidden=20,
        heads=5,
        kv_heads=5,
        ffn=31,
        vocab=15,
        seq=2,
        micro_batch=4,
        micro_batches=2,
        steps=3,
        seed=2**40 + 5,
    ),
}
STRIDE = 7
# fp32 values, as miniTaw stores them
ADAMW = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1)
ADAMW = {name: float(np.float32(value)) for name, value in ADAMW.items()}
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
    words = philox(counter, case["seed"], WEIGHTS).reshape(-1)[:count]
    unit = (words >> np.uint64(8)).astype(np.float64) * 2.0**-23 - 1.0
    if role.startswith("norm"):
        center, amplitude = 1.0, np.float32(0.1)
    elif role == "embedding":
        center, amplitude = 0.0, np.float32(np.sqrt(3.0))
    else:
        depth = 2.0 * case["layers"] if role in ("wo", "w2") else 1.0
        center, amplitude = 0.0, np.float32(np.sqrt(3.0 / (depth * shape[1])))
    values = (center + np.float64(amplitude) * unit).astype(np.float32)
    return torch.tensor(values.astype(np.float64).reshape(shape), requires_grad=True)


def make_parameters(case):
    h, d, ffn = case["hidden"], case["hidden"] // case["heads"], case["ffn"]
    parameters = {}
    for layer in range(case["layers"]):
        shapes = dict(
            norm1=(h,),
            wqkv=((case["heads"] + 2 * case["kv_heads"]) * d, h),
            wo=(h, h),
            norm2=(h,),
            w13=(2 * ffn, h),
            w2=(h, ffn),
        )
        for role, shape in shapes.items():
            parameters[f"layers.{layer}.{role}"] = initial(role, layer, shape, case)
    for role, shape in dict(
        embedding=(case["vocab"], h), norm=(h,), head=(case["vocab"], h)
    ).items():
        parameters[role] = initial(role, -1, shape, case)
    return parameters


def micro_batch(case, step, index):
    """Tokens and targets [B, S]: each token is the one before plus 1 to 4, at random, modulo V."""
    length = case["seq"] + 1
    rows = []
    for sequence in range(case["micro_batch"]):
        counter = (np.arange((length + 3) // 4), index * case["micro_batch"] + sequence, 0, step)
        words = philox(counter, case["seed"], TOKENS).reshape(-1)
        row = [int(words[0]) % case["vocab"]]
        for word in words[1:length]:
            row.append((row[-1] + 1 + (int(word) >> 30)) % case["vocab"])
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
    heads, kv_heads, d = case["heads"], case["kv_heads"], case["hidden"] // case["heads"]
    batch, seq, _ = qkv.shape
    q, k, v = qkv.split([heads * d, kv_heads * d, kv_heads * d], dim=-1)
    q = rotate(q.reshape(batch, seq, heads, d)).transpose(1, 2)
    k = (
        rotate(k.reshape(batch, seq, kv_heads, d))
        .transpose(1, 2)
        .repeat_interleave(heads // kv_heads, dim=1)
    )
    v = (
        v.reshape(batch, seq, kv_heads, d)
        .transpose(1, 2)
        .repeat_interleave(heads // kv_heads, dim=1)
    )
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) / d**0.5).masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, heads * d)


def summed_loss(p, case, tokens, targets):
    x = p["embedding"][tokens]
    for layer in range(case["layers"]):
        w = {role: p[f"layers.{layer}.{role}"] for role in ROLES[:6]}
        x = x + attention(rms_norm(x, w["norm1"]) @ w["wqkv"].T, case) @ w["wo"].T
        gate, up = (rms_norm(x, w["norm2"]) @ w["w13"].T).chunk(2, dim=-1)
        x = x + (F.silu(gate) * up) @ w["w2"].T
    logits = rms_norm(x, p["norm"]) @ p["head"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def train(case):
    parameters = make_parameters(case)
    decayed = [p for p in parameters.values() if p.dim() == 2]
    others = [p for p in parameters.values() if p.dim() == 1]
    optimiser = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=ADAMW["decay"]), dict(params=others, weight_decay=0.0)],
        lr=ADAMW["lr"],
        betas=(ADAMW["beta1"], ADAMW["beta2"]),
        eps=ADAMW["eps"],
    )
    losses, gradients = [], None
    tokens_of_step = case["seq"] * case["micro_batch"] * case["micro_batches"]
    for step in range(case["steps"]):
        optimiser.zero_grad(set_to_none=True)
        batches = [micro_batch(case, step, index) for index in range(case["micro_batches"])]
        loss = sum(summed_loss(parameters, case, *batch) for batch in batches) / tokens_of_step
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in parameters.items()}
        optimiser.step()
    return losses, gradients, parameters


def write(name, case):
    losses, gradients, weights = train(case)
    line = (
        lambda key, values, digits=12: f"{key}: "
        + " ".join(f"{v:.{digits}g}" for v in values)
        + "\n"
    )
    flat = lambda tensor: tensor.detach().flatten().tolist()
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".golden"), "w"
    ) as file:
        file.write(line("losses", losses, 17))
        file.writelines(line(f"gradient {tensor}", flat(g)) for tensor, g in gradients.items())
        file.writelines(
            line(f"weights {tensor}", flat(w)[::STRIDE]) for tensor, w in weights.items()
        )
    print(name, losses)


if __name__ == "__main__":
    assert philox((0, 0, 0, 0), 0, 0)[0].tolist() == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    for case_name, settings in CASES.items():
        write(case_name, settings)
