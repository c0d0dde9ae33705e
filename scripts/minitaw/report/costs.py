"""What it cost: bytes moved, where the time of a step went, planned against measured."""

import numpy

from .book import LeftOut, Section, at_longest, panels, tokens_text
from .charts import Bar, Frame, bar_chart, bar_legend, drawing, legend, line, marker, round_steps, row_head, swatch
from .markup import (
    byte_unit, bytes_text, captioned, exists, fold, join, listed, Markup, MEMORY_KINDS, number, PARTS, percent, plural, table,
    tag, time_unit, TRAFFIC_KINDS)
from .results import cut

# Bytes inside and between groups, by kind: counted in the transport and planned from the schedule.

KIND_NAMES = [(kind, "embedding and head" if kind == "ends" else kind) for kind in TRAFFIC_KINDS]


def split(case, name):
    """([inside by kind], [between by kind]) bytes per step; None if the case has no such matrix."""
    matrix = case.get(f"bytes/{name}")
    if matrix.ndim != 3:
        return None
    groups = group_of_ranks(case["groups"])
    same = groups[:, None] == groups[None, :]
    return matrix[same].sum(axis=0), matrix[~same].sum(axis=0)


def group_of_ranks(text):
    """Number of the group of each rank: "1+2" is 0 1 1."""
    sizes = [int(size) for size in text.split("+")]
    return numpy.repeat(numpy.arange(len(sizes)), sizes)


def traffic_bar_of(case, book, which, divisor):
    schedule = book.naming(case)
    counted, planned = split(case, "counted"), split(case, "planned")
    if counted is None:
        return Bar(schedule, note=f"{case['status']}: nothing counted")
    parts = [(class_, name, value / divisor) for (class_, name), value in zip(KIND_NAMES, counted[which]) if value]
    return Bar(schedule, parts, planned[which].sum() / divisor if planned else None, note="" if parts else "0")


def agreement(book):
    """Whether the transport moved what the schedule says."""
    known = [case for case in book.cases if case.get("bytes/counted").size]
    differ = [case for case in known if not numpy.array_equal(case.get("bytes/counted"), case.get("bytes/planned"))]
    if not differ:
        return f"In all {plural(len(known), 'case')} with counts, every rank sent every other exactly the planned bytes of each kind."
    worst = max(differ, key=lambda case: abs(difference(case)))
    return (f"In {len(differ)} of {plural(len(known), 'case')} counted and planned bytes differ: {listed(case.label for case in differ)}; "
            f"most in case {worst.label}, by {bytes_text(abs(difference(worst)))} a step.")


def difference(case):
    return float(case.get("bytes/counted").astype(float).sum() - case.get("bytes/planned").astype(float).sum())


def traffic_section(book):
    moved = [case for case in book.cases if case.get("bytes/counted").size and case["bytes_inside"] + case["bytes_between"] > 0]
    if not moved:
        return LeftOut("Bytes moved", "no case moved any")
    drawings = []
    for title, cases in panels(book.cases):
        seq, longest = at_longest(cases)
        chosen = [case for case in longest if case["ranks"] > 1]
        largest = max((case[name] for case in chosen for name in ("bytes_inside", "bytes_between")), default=0)
        if not largest:
            continue
        divisor, unit = byte_unit(largest)
        for which, where in enumerate(("inside groups", "between groups")):
            if not any(case["bytes_between" if which else "bytes_inside"] for case in moved):
                continue
            name = f"Bytes {where}: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
            some = [traffic_bar_of(case, book, which, divisor) for case in chosen]
            drawings.append(captioned(name, bar_chart(some, name, f"sent {where} [{unit}/step]", f"{unit}/step", largest / divisor)))
    words = "All ranks together, one step, at the longest sequence. Bars are counted in the transport; the line across each is the plan."
    sums = sum(case.get("bytes/counted").sum(axis=(0, 1)) for case in moved)
    used = [entry for entry, total in zip(KIND_NAMES, sums) if total]
    content = [tag("p", agreement(book)), tag("p", words), bar_legend(used)]
    return Section("Bytes moved", join([*content, *cut(drawings, pairs=True)]), "bytes")


# Where the time of a step went: computing, exposed to transfers by kind, idle.

def parts_bar_of(case, book, divisor):
    name = book.naming(case)
    if not exists(case["compute_s"]):
        return Bar(name, note=f"{case['status']}: no step was accounted for")
    parts = [(class_, what, case[column] / divisor) for column, what, class_ in PARTS if case[column] > 0]
    total = sum(case[column] for column, _, _ in PARTS)
    shares = "/".join(f"{100 * value / total:.0f}" for value in (case["compute_s"], total - case["compute_s"] - case["idle_s"], case["idle_s"]))
    return Bar(name, parts, note=shares + " %")


def parts_section(book):
    known = [case for case in book.cases if exists(case["compute_s"])]
    if not known:
        return LeftOut("Where the time went", "no case has it")
    drawings = []
    for title, cases in panels(book.cases):
        seq, longest = at_longest(cases)
        totals = [sum(case[column] for column, _, _ in PARTS) for case in longest if exists(case["compute_s"])]
        if not totals:
            continue
        divisor, unit = time_unit(max(totals))
        name = "Parts of a step: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
        some = [parts_bar_of(case, book, divisor) for case in longest]
        drawings.append(captioned(name, bar_chart(some, name, f"mean over ranks [{unit}/step]", f"{unit}/step", max(totals) / divisor)))
    used = [(class_, what) for column, what, class_ in PARTS if any(case[column] > 0 for case in known)]
    words = ("One step of each case at the longest sequence, mean over ranks: the step whose length is the median. Behind each name the "
             "shares of computing, exposed and idle. Exposed: what the rank waits for is a transfer that is under way; idle: it waits "
             "for another rank's computation, or has nothing to do.")
    return Section("Where the time went", join([tag("p", words), bar_legend(used), Markup(join(cut(drawings)))]), "time")


# Planned against measured: memory by kind and rank, and the idle share of the schedule against that of the run.

MOST_TABLES, MOST_RANKS = 24, 64
ROW = 34


def memory(case, name):
    """Bytes [rank, kind]; None if the case has none."""
    values = case.get(f"memory/{name}")
    return values.astype(float) if values.ndim == 2 and values.size else None


def kinds_of(case):
    return MEMORY_KINDS


def memory_sentence(cases):
    known = [case for case in cases if memory(case, "measured") is not None and memory(case, "planned") is not None]
    differ = [case for case in known if not numpy.array_equal(case.get("memory/planned"), case.get("memory/measured"))]
    if not known:
        return "No case says how much memory it planned and got."
    if not differ:
        return f"In all {plural(len(known), 'case')} that ran, every rank was handed out exactly the planned bytes of every kind."
    worst = max(differ, key=lambda case: float(abs(memory(case, "measured") - memory(case, "planned")).max()))
    largest = float(abs(memory(worst, "measured") - memory(worst, "planned")).max())
    return (f"In {len(differ)} of {plural(len(known), 'case')} planned and measured memory differ: {listed(case.label for case in differ)}; "
            f"most in case {worst.label}, by {bytes_text(largest)} of one kind on one rank.")


def worst_rank(case):
    """Planned and measured bytes by kind of the rank that got most."""
    measured = memory(case, "measured")
    rank = int(measured.sum(axis=1).argmax())
    return memory(case, "planned")[rank], measured[rank]


def memory_bar(case, book, divisor):
    name = book.naming(case)
    if memory(case, "measured") is None:
        return Bar(name, note=f"{case['status']}: nothing measured")
    planned, measured = worst_rank(case)
    return Bar(name, [(f"m{k}", kind, v / divisor) for k, (kind, v) in enumerate(zip(MEMORY_KINDS, measured)) if v], planned.sum() / divisor)


def memory_charts(book):
    for title, cases in panels(book.cases):
        seq, longest = at_longest(cases)
        known = [case for case in longest if memory(case, "measured") is not None]
        if not known:
            continue
        largest = max(worst_rank(case)[i].sum() for case in known for i in (0, 1))
        divisor, unit = byte_unit(largest)
        name = "Memory by kind: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
        some = [memory_bar(case, book, divisor) for case in longest]
        yield captioned(name, bar_chart(some, name, f"worst rank [{unit}]", unit, largest / divisor))


def memory_table(case, book):
    """Every rank and kind: planned, and the difference where there is one."""
    planned, measured = memory(case, "planned"), memory(case, "measured")
    rows = []
    for rank in range(min(len(planned), MOST_RANKS)):
        cells = [tag("th", f"{rank}", scope="row")]
        for p, m in zip([*planned[rank], planned[rank].sum()], [*measured[rank], measured[rank].sum()]):
            cells.append(number(bytes_text(p) + (f" ({'+' if m > p else '−'}{bytes_text(abs(m - p))})" if m != p else ""), int(p)))
        rows.append(cells)
    rest = f"; the first {MOST_RANKS} of {len(planned)} ranks" if len(planned) > MOST_RANKS else ""
    title = f"case {case.label}: {book.naming(case)}, {plural(case['ranks'], 'rank')}, {tokens_text(case['seq'])}{rest}"
    return table(["rank", *MEMORY_KINDS, "together"], rows, title)


def planned_idle(case):
    """Share of the ticks in which ranks compute nothing: the idle time of the order alone; None if unknown."""
    idle = case.get("idle_ticks")
    return float(idle.mean() / case["ticks"]) if idle.size and case["ticks"] > 0 else None


def idle_chart(cases, book, title):
    """Two marks on a line for each case: what the order plans, and what was measured."""
    frame = Frame(height=ROW * len(cases) + 52, left=8, right=20, top=4)
    values = [(case, planned_idle(case), case["bubble"] if exists(case["bubble"]) else case["idle_share"]) for case in cases]
    values = [(case, p, m) for case, p, m in values if p is not None and exists(m)]
    steps = round_steps(100 * max(max(p, m) for _, p, m in values), 5)
    frame.scale_x(0, steps[-1], inset=5)
    parts, said = [frame.x_axis(steps, "idle, mean over ranks [% of the step]")], []
    for row, (case, p, m) in enumerate(values):
        top = frame.top + ROW * row
        y, a, b = top + 22, frame.x(100 * p), frame.x(100 * m)
        tip = f"{book.naming(case)}: planned {percent(p)}, measured {percent(m)}"
        parts.append(row_head(frame, top, book.naming(case), f"{100 * p:.1f} → {100 * m:.1f} %", "tick"))
        parts.append(line(a, y, b, y, "dumbbell"))
        parts += [marker("ring", a, y, "plan", tip), marker("circle", b, y, "c1", tip)]
        said.append(tip)
    return drawing(frame.width, frame.height, f"{title}. " + "; ".join(said), *parts)


def idle_charts(book):
    for title, cases in panels(book.valid):
        seq, longest = at_longest(cases)
        some = [case for case in longest if planned_idle(case) is not None and exists(case["idle_share"])]
        if some:
            name = "Idle, planned and measured: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
            yield captioned(name, idle_chart(some, book, name))


def planned_section(book):
    known = [case for case in book.cases if memory(case, "measured") is not None and memory(case, "planned") is not None]
    if not known:
        return LeftOut("Planned against measured", "no case ran far enough")
    content = [tag("h3", "Memory"), tag("p", memory_sentence(book.cases), " Bars: handed out on the worst rank at the longest sequence; "
                                        "the line across each is the plan.")]
    content += [bar_legend([(f"m{k}", kind) for k, kind in enumerate(MEMORY_KINDS)]), *cut(list(memory_charts(book)))]
    tables = [memory_table(case, book) for case in known[:MOST_TABLES]]
    rest = f" (the first {MOST_TABLES} of {len(known)} cases)" if len(known) > MOST_TABLES else ""
    content.append(fold(f"Planned memory of every rank by kind, differences in brackets{rest}", tag("div", *tables, class_="tables")))
    idle = list(idle_charts(book))
    if idle:
        entries = [(swatch(marker("ring", 7, 7, "plan"), 14), "planned: ticks of the order without computation, transfers free"),
                   (swatch(marker("circle", 7, 7, "c1"), 14), "measured: idle share of the step")]
        content += [tag("h3", "Idle time"), legend(entries), *cut(idle)]
    return Section("Planned against measured", join(content), "planned")
