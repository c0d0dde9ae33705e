# SPDX-License-Identifier: BSD-3-Clause
"""Strong and weak scaling: cases that are alike but for ranks, with the tokens of a step fixed for
all or for each rank (docs/report.md)."""

from . import charts
from .book import Picture, table
from .drawing import as_image, draw_lines, legend_below, new_figure
from .numbers import count_text, figure, percent
from .record import fastest
from .settings import BATCH, TOLD, grouped, values_of

FIXED = [name for name in TOLD if name not in ("ranks", "groups", "replicas", *BATCH)] + ["seq"]
HEAD = ["ranks", "groups", "tokens in a step", "token/s", "speed-up", "efficiency"]


def scaling_lines(book, cases):
    """{name: the fastest case of each number of ranks}, where there are several numbers."""
    lines = {}
    for name, some in grouped(cases, book.naming).items():
        by_ranks = grouped(some, lambda case: case["ranks"])
        if len(by_ranks) > 1:
            lines[name] = [fastest(same) for _, same in sorted(by_ranks.items())]
    return lines


def picture_of(book, lines, efficiency):
    drawn = new_figure(height=4)
    axes = drawn.subplots(2, 1, sharex=True)
    for panel, value, label in (
        (axes[0], lambda case: case["tokens_per_s"], "throughput, all ranks [token/s]"),
        (axes[1], lambda case: 100 * efficiency(case), "efficiency [%]"),
    ):
        draw_lines(panel, lines, book.styles, lambda case: case["ranks"], value, label)
    axes[1].set_xlabel("ranks")
    legend_below(drawn, axes[0])
    return as_image(drawn)


def scaling_part(book, kind, of_rank, tokens_of):
    """Pictures and a table of one kind of scaling; nothing if there are no such cases."""
    alike = grouped(book.valid, lambda case: (tokens_of(case), *values_of(case, FIXED))).values()
    parts = list(filter(None, (scaling_lines(book, cases) for cases in alike)))
    if not parts:
        return []
    series = [line for lines in parts for line in lines.values()]
    first = {id(case): line[0] for line in series for case in line}

    def gain(case, column):
        return case[column] / first[id(case)][column]

    def efficiency(case):
        return gain(case, "tokens_per_s_rank")

    def cells_of(case):
        return [
            figure(case["ranks"]),
            case["groups"],
            figure(case.tokens),
            figure(case["tokens_per_s"]),
            figure(gain(case, "tokens_per_s")),
            percent(efficiency(case)),
        ]

    pictures = []
    for lines in parts[: charts.MOST_PANELS]:
        some = next(iter(lines.values()))[0]
        tokens = f"{figure(tokens_of(some))} tokens in a step{of_rank}"
        title = f"{kind} scaling: {tokens}, {count_text(some['seq'])} in a sequence"
        pictures.append(Picture(title, picture_of(book, lines, efficiency)))
    cases = [case for line in series for case in line]
    rows = table(f"{kind} scaling in numbers", HEAD, cases, cells_of)
    return [pictures, *charts.not_drawn(len(parts) - len(pictures)), rows]


def scaling_section(book):
    strong = scaling_part(book, "Strong", "", lambda case: case.tokens)
    weak = scaling_part(book, "Weak", " of each rank", lambda case: case.tokens / case["ranks"])
    if not strong + weak:
        return (
            "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, "
            "kept the same"
        )
    return [
        "Strong scaling: the tokens of a step stay the same, whatever the ranks. Weak scaling: "
        "they grow with the ranks. Of a schedule the fastest case of each number of ranks. "
        "Efficiency is the rate of a rank against that of a rank of the smallest job.",
        *strong,
        *weak,
    ]
