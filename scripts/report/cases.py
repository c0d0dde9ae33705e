"""All cases in a table, and in words what failed and why."""

from .book import LeftOut, Section
from .group import shared_settings, telling
from .head import reason_of
from .html import join, name_cell, number, table, table_row, tag
from .text import bytes_text, count_text, error, figure, listed, percent, plural, seconds_text

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


def section(book):
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
