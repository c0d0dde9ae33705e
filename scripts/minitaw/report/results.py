"""What came out: all cases in a table, throughput and memory against sequence length, strong and weak scaling."""

from ..record import reason_of
from .book import (
    LeftOut, lines_of, MOST_PANELS, panels, Section, setting_text, SETTINGS, shared_settings, split_families, telling,
    tokens_text)
from .charts import Bar, Line, Point, bar_chart, line_chart, line_legend
from .markup import (
    byte_unit, bytes_text, captioned, count_text, error, figure, figures, join, listed, name_cell, number, percent, plural,
    seconds_text, table, table_row, tag)

# All cases in a table, and in words what failed and why.

MARKS = {"ok": "✔", "skipped": "–"}
# Settings with a column where they differ; schedule, ranks, groups and length always have one.
EXTRA = ["replicas", "hidden", "layers", "dtype", "recompute", "micro_batches", "micro_batch", "micro_batch_per_rank", "vocab", "data",
         "attention", "transport", "seed", "learning_rate"]
NAMES = {"micro_batches": "M", "micro_batch": "B", "micro_batch_per_rank": "B per rank"}


def quartiles(case):
    return f"{seconds_text(case['q1_s'])} – {seconds_text(case['q3_s'])}"


# name, text, exact value
FIGURES = [
    ("step (median)", lambda c: seconds_text(c["median_s"]), "median_s"),
    ("quartiles", quartiles, None),
    ("token/s", lambda c: figure(c["tokens_per_s"]), "tokens_per_s"),
    ("TFLOP/s", lambda c: figure(c["tflops_causal"]), "tflops_causal"),
    ("memory, worst rank", lambda c: bytes_text(c["memory_measured"]), "memory_measured"),
    ("inside / step", lambda c: bytes_text(c["bytes_inside"]), "bytes_inside"),
    ("between / step", lambda c: bytes_text(c["bytes_between"]), "bytes_between"),
    ("exposed", lambda c: percent(c["exposed_share"]), "exposed_share"),
    ("idle", lambda c: percent(c["idle_share"]), "idle_share"),
    ("overlap", lambda c: percent(c["overlap"]), "overlap"),
    ("last loss", lambda c: figure(c["last_loss"], 5), "last_loss"),
    ("gradient error", lambda c: error(c["gradient_error"]), "gradient_error"),
]


def status_cell(case):
    if case.valid:
        return tag("td", tag("span", "✔ ", aria_hidden="true"), tag("b", "VALID"), f" ({case.doubt})" if case.doubt else "",
                   class_="good doubt" if case.doubt else "good")
    return tag("td", tag("span", "✘ ", aria_hidden="true"), case["status"] if case["status"] != "ok" else "INVALID", class_="bad")


def row_of(case, extra):
    cells = [tag("th", case.label, scope="row"), status_cell(case), name_cell(case["schedule"]), number(f"{case['ranks']}"),
             tag("td", case["groups"]), number(count_text(case["seq"]))]
    cells += [tag("td", case[name]) for name in extra]
    if case["median_s"] > 0:
        cells += [number(text(case), case[column] if column else None) for _, text, column in FIGURES]
    else:
        cells.append(tag("td", reason_of(case), colspan=str(len(FIGURES)), class_="reason"))
    return table_row(cells, class_=None if case.valid else "failed", id=f"case-{case.label}")


def failures(book):
    """What went wrong, cases of one reason together."""
    reasons = {}
    for case in book.cases:
        if not case.valid:
            reasons.setdefault((case["status"], reason_of(case)), []).append(case)
    if not reasons:
        return tag("p", f"All {plural(len(book.cases), 'case')} ended valid.")
    items = []
    for (status, reason), cases in reasons.items():
        which = listed([f"{c.label} ({c['schedule']}, {plural(c['ranks'], 'rank')}, {count_text(c['seq'])} tokens)" for c in cases], 6)
        items.append(tag("li", tag("b", status if status != "ok" else "INVALID"), ": ", reason.removeprefix(f"{status}: "),
                         tag("br"), tag("span", f"{plural(len(cases), 'case')}: {which}", class_="quiet")))
    bad = len(book.cases) - len(book.valid)
    return join([tag("p", tag("b", f"{bad} of {plural(len(book.cases), 'case')} {'is' if bad == 1 else 'are'} not valid:")), tag("ul", *items, class_="failures")])


def counts(book):
    """ok 20, oom 3, skipped 1"""
    found = {}
    for case in book.cases:
        found[case["status"]] = found.get(case["status"], 0) + 1
    return ", ".join(f"{count} {status}" for status, count in found.items())


def cases_section(book):
    if not book.cases:
        return LeftOut("Cases", "no case was run")
    extra = telling(book.cases, ["schedule", "ranks", "groups", "seq", *EXTRA])
    extra = [name for name in extra if name in EXTRA]
    head = ["case", "result", "schedule", "ranks", "groups", "S [token]", *[NAMES.get(n, n) for n in extra], *[name for name, _, _ in FIGURES]]
    shared = shared_settings(book.cases)
    content = [tag("p", f"{plural(len(book.cases), 'case')}: {counts(book)}." + (f" In common: {', '.join(shared)}." if shared else ""))]
    content.append(failures(book))
    content.append(table(head, [row_of(case, extra) for case in book.cases], "All cases", class_="cases long" if len(book.cases) > 40 else "cases"))
    content.append(tag("p", "A sample is the slowest rank's step; exposed: held up by transfers, idle: nothing to do, both as shares of the "
                            "step, mean over ranks; overlap: hidden part of the communication; gradient error: against the serial "
                            "reference, – where it was not checked.", class_="quiet"))
    return Section("Cases", join(content), "cases")


# Throughput and memory against sequence length: one line for each schedule, a panel for every other setting.

def rate_point(case):
    low, high = (case.tokens / case[q] if case[q] > 0 else None for q in ("q3_s", "q1_s"))
    tip = f"case {case.label}: {case['schedule']}, {tokens_text(case['seq'])}: {figure(case['tokens_per_s'], 5)} token/s"
    return Point(case["seq"], case["tokens_per_s"], low, high, tip)


def failed_point(case):
    return Point(case["seq"], 0, tip=f"case {case.label}: {case['schedule']}, {tokens_text(case['seq'])}: {reason_of(case)}")


def memory_point(divisor, unit):
    def point(case):
        y = case["memory_measured"] / divisor
        return Point(case["seq"], y, tip=f"case {case.label}: {case['schedule']}, {tokens_text(case['seq'])}: {figure(y)} {unit}")
    return point


def chart(title, cases, others, book, point, y, largest):
    """A line chart; with a single sequence length, bars."""
    drawn = [Line(name, [point(c) for c in some if c.valid], [failed_point(c) for c in some if not c.valid])
             for name, some in lines_of(cases, book.naming).items()]
    drawn += [Line(name, [point(c) for c in some if c.valid], faint=True) for name, some in lines_of(others, book.naming).items()]
    marks = sorted({case["seq"] for case in cases + others})
    if len(marks) == 1:
        return bar_chart([bar_of(one, book) for one in drawn if not one.faint], title, y[0], y[1], largest)
    x = ("sequence length [token]", marks, lambda v: count_text(int(v)), True)
    return line_chart(drawn, book.styles, title, x, y, largest)


def bar_of(one, book):
    if not one.points:
        return Bar(one.name, note=one.failed[0].tip.split(": ", 2)[-1] if one.failed else "no valid case")
    p = one.points[0]
    return Bar(one.name, [(f"c{book.styles.colour(one.name)} bar", "", p.y)], spread=(p.low, p.high) if p.low else None)


def panel(what, title, some, others, book, point, y, largest):
    name = f"{what}: {title}" if title else what
    lengths = {case["seq"] for case in some + others}
    if len(lengths) == 1:
        name += f" at {tokens_text(lengths.pop())}"
    return captioned(name, chart(name, some, others, book, point, y, largest))


def scale(cases, value):
    """One scale for all panels, so that they can be compared by eye, unless some would be squeezed flat: then None."""
    tops = [max((value(case) for case in some if case.valid), default=None) for _, some in panels(cases)]
    tops = [top for top in tops if top]
    return max(tops) if tops and max(tops) < 4 * min(tops) else None


def best_rate(case):
    return max(case["tokens_per_s"], case.tokens / case["q1_s"])


def draw_panels(book):
    """Throughput and memory of a panel side by side. Returns the drawings and whether they differ in scale."""
    fastest, largest = scale(book.cases, best_rate), scale(book.cases, lambda case: case["memory_measured"])
    drawings = []
    for title, cases in panels(book.cases):
        valid = [case for case in cases if case.valid]
        divisor, unit = byte_unit(largest or max((case["memory_measured"] for case in valid), default=0))
        for suffix, some, others in split_families(cases, book.naming) if valid else []:
            here = "; ".join(part for part in (title, suffix) if part)
            drawings.append(panel("Throughput", here, some, others, book, rate_point, ("all ranks [token/s]", "token/s"), fastest))
            memory = (f"worst rank [{unit}]", unit)
            drawings.append(panel("Memory", here, some, others, book, memory_point(divisor, unit), memory, largest and largest / divisor))
    return drawings, fastest is None or largest is None


def cut(drawings, pairs=False):
    """The first panels and, if there are more, a sentence about the rest."""
    if len(drawings) <= MOST_PANELS:
        return [figures(drawings, pairs)]
    rest = len(drawings) - MOST_PANELS
    return [figures(drawings[:MOST_PANELS], pairs), tag("p", f"{plural(rest, 'panel')} more not drawn; the table of cases has their figures.")]


def throughput_section(book):
    if not book.valid:
        return LeftOut("Throughput and memory", "there is no valid case")
    names = dict.fromkeys(book.naming(case) for case in book.cases)
    several = len({case["seq"] for case in book.cases}) > 1
    drawings, own_scales = draw_panels(book)
    words = "Medians; bars go from the first to the third quartile."
    if own_scales:
        words += " Every panel has a scale of its own."
    if any(not case.valid for case in book.cases):
        words += " ✕: a case without a valid result."
    if len(names) > 8:
        words += " Schedules are drawn family by family; grey lines are the others, for comparison." if several else ""
    content = [tag("p", words)]
    if several:
        content.append(line_legend(names, book.styles))
    return Section("Throughput and memory", join([*content, *cut(drawings, pairs=True)]), "throughput")


# Strong and weak scaling: the same lines over ranks, with the tokens of a step fixed for all or for each rank.

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
        rates = [Line(n, [Point(c["ranks"], c["tokens_per_s"], tip=f"{n}, {c['ranks']} ranks: {figure(c['tokens_per_s'])} token/s")
                                for c in line]) for n, line in chosen.items()]
        shares = [Line(n, [Point(c["ranks"], 100 * efficiency(c, line[0]), tip=f"{n}, {c['ranks']} ranks: "
                                             f"{percent(efficiency(c, line[0]))}") for c in line]) for n, line in chosen.items()]
        best = max(line[0]["tokens_per_s_rank"] for line in chosen.values() if line[0]["ranks"] == marks[0]) if any(
            line[0]["ranks"] == marks[0] for line in chosen.values()) else None
        ideal = [(m, best * m) for m in marks] if best else None
        name = f"{kind.capitalize()} scaling, throughput: {here}"
        yield captioned(name, line_chart(rates, book.styles, name, x, ("all ranks [token/s]", "token/s"), ideal=ideal))
        name = f"{kind.capitalize()} scaling, efficiency: {here}"
        ideal = [(marks[0], 100), (marks[-1], 100)]
        yield captioned(name, line_chart(shares, book.styles, name, x, ("efficiency [%]", "%"), ideal=ideal))


def rows(some):
    for (name, suffix), line in some.items():
        for case in line:
            share = efficiency(case, line[0])
            yield [name_cell(name + (f", {suffix}" if suffix else "")), number(f"{case['ranks']}"), case["groups"],
                   number(count_text(case.tokens)), number(figure(case["tokens_per_s"]), case["tokens_per_s"]),
                   number(figure(case["tokens_per_s"] / line[0]["tokens_per_s"], 3)), number(percent(share), share)]


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


def scaling_section(book):
    parts = [part(kind, book) for kind in ("strong", "weak")]
    if not any(parts):
        return LeftOut("Scaling", "no two valid cases differ in ranks with the tokens of a step, or of a rank and step, kept the same")
    found = [some for kind in ("strong", "weak") for _, some in by_ranks(book.valid, book.naming, kind)]
    names = dict.fromkeys(name for some in found for name, _ in some)
    return Section("Scaling", join([line_legend(names, book.styles), *parts]), "scaling")
