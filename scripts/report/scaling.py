"""Strong and weak scaling: the same lines over ranks, with the tokens of a step fixed for all or for each rank."""

from . import lines
from .book import LeftOut, Section
from .group import SETTINGS, setting_text, telling
from .html import figure as html_figure
from .html import figures, join, name_cell, table, tag
from .html import number as cell
from .text import count_text, figure, percent

# What may change with the ranks, and what has to stay.
FREE = ["ranks", "groups", "micro_batches", "micro_batch", "micro_batch_per_rank", "replicas"]
FIXED = [name for name in SETTINGS if name not in FREE] + ["seq"]


def tokens_key(case, kind):
    return case.tokens if kind == "strong" else round(case.tokens / case["ranks"], 3)


def by_ranks(cases, naming, kind):
    """[(settings, {name: [cases, sorted by ranks]})] of lines with at least two numbers of ranks."""
    found = {}
    for case in cases:
        key = (tokens_key(case, kind), *[case[name] for name in FIXED])
        found.setdefault(key, {}).setdefault(naming(case), []).append(case)
    for key, some in found.items():
        chosen = {}
        for name, line in some.items():
            for suffix, one in apart(line):
                if len({case["ranks"] for case in one}) > 1:
                    chosen[name, suffix] = sorted(one, key=lambda case: case["ranks"])
        if chosen:
            yield key, chosen


def apart(cases):
    """Cases of one line with one case for each number of ranks: else by the number of groups, copies, micro-batch."""
    for names in ([], ["group_count"], ["group_count", "replicas"], ["group_count", "replicas", "micro_batch"],
                  ["groups", "replicas", "micro_batch", "micro_batch_per_rank"]):
        parts = {}
        for case in cases:
            parts.setdefault(tuple(case[name] for name in names), []).append(case)
        if all(len({case["ranks"] for case in some}) == len(some) for some in parts.values()):
            break
    for key, some in parts.items():
        texts = [f"{value} group{'s' if value != 1 else ''}" if n == "group_count" else setting_text(n, value)
                 for n, value in zip(names, key) if len(parts) > 1]
        yield ", ".join(texts), some


def efficiency(case, first):
    """Rate of a rank against that of a rank of the smallest job: 1 is ideal, for both kinds of scaling."""
    return case["tokens_per_s_rank"] / first["tokens_per_s_rank"]


def title_of(key, kind, cases):
    words = f"{count_text(int(key[0]))} tokens a step" if kind == "strong" else f"{figure(key[0], 6)} tokens a step and rank"
    names = [name for name in telling(cases, FIXED)]
    return "; ".join([words, *[setting_text(n, key[1 + FIXED.index(n)]) if n != "seq" else f"S = {count_text(key[-1])}" for n in names]])


def charts(key, some, kind, book, title):
    marks = sorted({case["ranks"] for line in some.values() for case in line})
    x = ("ranks", marks, lambda v: f"{int(v)}", marks[-1] / marks[0] > 2)
    suffixes = {suffix for _, suffix in some}
    for suffix in sorted(suffixes):
        chosen = {name: line for (name, s), line in some.items() if s == suffix}
        here = f"{title}; {suffix}" if suffix else title
        rates = [lines.Line(n, [lines.Point(c["ranks"], c["tokens_per_s"], tip=f"{n}, {c['ranks']} ranks: {figure(c['tokens_per_s'])} token/s")
                                for c in line]) for n, line in chosen.items()]
        shares = [lines.Line(n, [lines.Point(c["ranks"], 100 * efficiency(c, line[0]), tip=f"{n}, {c['ranks']} ranks: "
                                             f"{percent(efficiency(c, line[0]))}") for c in line]) for n, line in chosen.items()]
        best = max(line[0]["tokens_per_s_rank"] for line in chosen.values() if line[0]["ranks"] == marks[0]) if any(
            line[0]["ranks"] == marks[0] for line in chosen.values()) else None
        ideal = [(m, best * m) for m in marks] if best else None
        name = f"{kind.capitalize()} scaling, throughput: {here}"
        yield html_figure(name, lines.line_chart(rates, book.styles, name, x, ("all ranks [token/s]", "token/s"), ideal=ideal))
        name = f"{kind.capitalize()} scaling, efficiency: {here}"
        ideal = [(marks[0], 100), (marks[-1], 100)]
        yield html_figure(name, lines.line_chart(shares, book.styles, name, x, ("efficiency [%]", "%"), ideal=ideal))


def rows(some):
    for (name, suffix), line in some.items():
        for case in line:
            share = efficiency(case, line[0])
            yield [name_cell(name + (f", {suffix}" if suffix else "")), cell(f"{case['ranks']}"), case["groups"],
                   cell(count_text(case.tokens)), cell(figure(case["tokens_per_s"]), case["tokens_per_s"]),
                   cell(figure(case["tokens_per_s"] / line[0]["tokens_per_s"], 3)), cell(percent(share), share)]


WORDS = {"strong": "Strong scaling: the tokens of a step stay the same, whatever the ranks.",
         "weak": "Weak scaling: the tokens of a step grow with the ranks."}


def part(kind, book):
    found = list(by_ranks(book.valid, book.naming, kind))
    if not found:
        return ""
    cases = [case for _, some in found for line in some.values() for case in line]
    drawings = [drawing for key, some in found for drawing in charts(key, some, kind, book, title_of(key, kind, cases))]
    head = ["schedule", "ranks", "groups", "tokens a step", "token/s", "speed-up", "efficiency"]
    body = [row for _, some in found for row in rows(some)]
    content = [tag("h3", f"{kind.capitalize()} scaling"), tag("p", WORDS[kind], " Efficiency is the rate of a rank against that of a rank "
               "of the smallest job of the line. The thin line is ideal scaling of the fastest schedule at the fewest ranks.")]
    return join([*content, figures(drawings[:24], pairs=True), table(head, body, f"{kind.capitalize()} scaling in numbers")])


def section(book):
    parts = [part(kind, book) for kind in ("strong", "weak")]
    if not any(parts):
        return LeftOut("Scaling", "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, kept the same")
    found = [some for kind in ("strong", "weak") for _, some in by_ranks(book.valid, book.naming, kind)]
    names = dict.fromkeys(name for some in found for name, _ in some)
    return Section("Scaling", join([lines.line_legend(names, book.styles), *parts]), "scaling")
