"""Where the time of a step went: computing, exposed to transfers by kind, idle."""

from . import bars
from .book import LeftOut, Section
from .group import at_longest, panels, tokens_text
from .html import Markup, figure, join, tag
from .style import PARTS
from .text import exists, time_unit
from .throughput import cut


def bar_of(case, book, divisor):
    name = book.naming(case)
    if not exists(case["compute_s"]):
        return bars.Bar(name, note=f"{case['status']}: no step was accounted for")
    parts = [(class_, what, case[column] / divisor) for column, what, class_ in PARTS if case[column] > 0]
    total = sum(case[column] for column, _, _ in PARTS)
    shares = "/".join(f"{100 * value / total:.0f}" for value in (case["compute_s"], total - case["compute_s"] - case["idle_s"], case["idle_s"]))
    return bars.Bar(name, parts, note=shares + " %")


def section(book):
    known = [case for case in book.cases if exists(case["compute_s"])]
    if not known:
        old = [result for result in book.results if result.schema < 3]
        return LeftOut("Where the time went", "files before schema 3 do not have it" if old else "no case has it")
    drawings = []
    for title, cases in panels(book.cases):
        seq, longest = at_longest(cases)
        totals = [sum(case[column] for column, _, _ in PARTS) for case in longest if exists(case["compute_s"])]
        if not totals:
            continue
        divisor, unit = time_unit(max(totals))
        name = "Parts of a step: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
        some = [bar_of(case, book, divisor) for case in longest]
        drawings.append(figure(name, bars.bar_chart(some, name, f"mean over ranks [{unit}/step]", f"{unit}/step", max(totals) / divisor)))
    used = [(class_, what) for column, what, class_ in PARTS if any(case[column] > 0 for case in known)]
    words = ("One step of each case at the longest sequence, mean over ranks: the step whose length is the median. Behind each name the "
             "shares of computing, exposed and idle. Exposed: what the rank waits for is a transfer that is under way; idle: it waits "
             "for another rank's computation, or has nothing to do.")
    return Section("Where the time went", join([tag("p", words), bars.bar_legend(used), Markup(join(cut(drawings)))]), "time")
