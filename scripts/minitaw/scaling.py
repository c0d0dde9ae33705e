# SPDX-License-Identifier: BSD-3-Clause
"""Strong and weak scaling: cases that are alike but for ranks, with the tokens of a step fixed for
all or for each rank (docs/report.md)."""

import pandas

from . import charts
from .book import Picture, table
from .drawing import WIDTH, as_image
from .numbers import count_text, figure, percent
from .record import rows_of, tokens_of
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


def best_of(cases, alike):
    """The fastest case of each number of ranks, where there are several numbers, with what it gains
    on the fewest ranks."""
    rising = cases.sort_values("tokens_per_s")
    best = rising.groupby([*alike, "ranks"], sort=False).tail(1).sort_values("ranks")
    lines = best.groupby(alike, sort=False)
    first = lines[["tokens_per_s", "tokens_per_s_rank"]].transform("first")
    best["gain"] = best.tokens_per_s / first.tokens_per_s
    best["efficiency"] = best.tokens_per_s_rank / first.tokens_per_s_rank
    return best[lines.ranks.transform("size") > 1]


def picture_of(book, cases):
    rows = []
    for name, units in (("tokens_per_s", "token/s"), ("efficiency", "")):
        points = charts.points_of(cases, name, "ranks")
        rows.append([charts.chart(points, book.styles, name, units, "ranks")])
    rows[0][0].names = []  # one legend is enough
    return as_image(charts.chart_figure(rows, WIDTH))


def scaling_part(book, kind, of_rank, cases):
    """Pictures and a table of one kind of scaling, where `same` is fixed; nothing if there are no
    such cases."""
    best = best_of(cases, ["same", *FIXED, "line"])
    parts = list(best.groupby(["same", *FIXED], sort=False))
    if not parts:
        return []
    pictures = []
    for (same, *_), some in parts[: charts.MOST_PANELS]:
        step = f"{figure(same)} tokens in a step{of_rank}"
        title = f"{kind} scaling: {step}, {count_text(some.seq.iloc[0])} in a sequence"
        pictures.append(Picture(title, picture_of(book, some)))
    rows = pandas.concat(some for _, some in best.groupby(["same", *FIXED, "line"], sort=False))
    numbers = table(f"{kind} scaling in numbers", rows, COLUMNS)
    return [pictures, *charts.not_drawn(len(parts) - len(pictures)), numbers]


def scaling_section(book):
    cases = book.valid.assign(tokens=[tokens_of(case) for case in rows_of(book.valid)])
    strong = scaling_part(book, "Strong", "", cases.assign(same=cases.tokens))
    of_rank = cases.assign(same=cases.tokens / cases.ranks)
    weak = scaling_part(book, "Weak", " of each rank", of_rank)
    if not strong + weak:
        return (
            "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, "
            "kept the same"
        )
    return [*strong, *weak]
