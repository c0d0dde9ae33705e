# SPDX-License-Identifier: BSD-3-Clause
"""Strong and weak scaling: cases that are alike but for ranks, with the tokens of a step fixed for
all or for each rank (docs/show.md)."""

from .book import table
from .numbers import figure, percent
from .record import tokens_of
from .settings import BATCH, TOLD

FIXED = [name for name in TOLD if name not in ("ranks", "groups", "replicas", *BATCH)] + ["seq"]
COLUMNS = {
    "ranks": ("ranks", figure),
    "groups": ("groups", str),
    "tokens": ("tokens in a step", figure),
    "tokens_per_s": ("token/s", figure),
    "gain": ("speed-up", figure),
    "efficiency": ("efficiency", percent),
}


def best_of(cases):
    """The fastest case of each number of ranks, where there are several numbers, with what it gains
    on the fewest ranks."""
    alike = ["same", *FIXED, "line"]
    rising = cases.sort_values("tokens_per_s")
    best = rising.groupby([*alike, "ranks"], sort=False).tail(1).sort_values([*alike, "ranks"])
    lines = best.groupby(alike, sort=False)
    first = lines[["tokens_per_s", "tokens_per_s_rank"]].transform("first")
    best["gain"] = best.tokens_per_s / first.tokens_per_s
    best["efficiency"] = best.tokens_per_s_rank / first.tokens_per_s_rank
    return best[lines.ranks.transform("size") > 1]


def scaling_part(kind, cases):
    """A table of one kind of scaling, where `same` is fixed; nothing if there are no such cases."""
    best = best_of(cases)
    return [] if best.empty else [table(f"{kind} scaling", best, COLUMNS)]


def scaling_section(book):
    cases = book.valid.assign(tokens=tokens_of)
    strong = scaling_part("Strong", cases.assign(same=cases.tokens))
    weak = scaling_part("Weak", cases.assign(same=cases.tokens / cases.ranks))
    return [*strong, *weak] or (
        "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, kept "
        "the same"
    )
