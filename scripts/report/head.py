"""The top of the page: may this result be quoted, and what is its figure of merit."""

from .html import join, tag
from .text import bytes_text, figure, listed, plural, seconds_text


def describe(case):
    return f"{case['schedule']}, {case['ranks']} ranks in groups {case['groups']}, {case['seq']} tokens"


def fastest(cases):
    """The valid case of the largest rate: the figure of merit (docs/results.md)."""
    return max((case for case in cases if case.valid), key=lambda case: case["tokens_per_s"], default=None)


def reason_of(case):
    """Why a case is not valid, without the word that says so."""
    return case["verdict"].removeprefix("INVALID: ") or case["reason"] or case["status"]


def verdict_of(cases):
    """Of a file, in the words of `minitaw show`."""
    bad = [case for case in cases if not case.valid]
    if not cases:
        return "INVALID: no case was run"
    if bad:
        return f"INVALID: {counted(bad, cases)}: {reason_of(bad[0])}"
    doubtful = [case for case in cases if case.doubt]
    return f"VALID ({counted(doubtful, cases)}: {doubtful[0].doubt})" if doubtful else "VALID"


def counted(some, cases):
    return f"{len(some)} of {len(cases)} cases, first case {some[0]['case']} ({describe(some[0])})"


def verdict_box(result):
    verdict = verdict_of(result.cases)
    good = verdict.startswith("VALID")
    name = f"{result.letter}: {result.name}" if result.letter else result.name
    word, rest = ("VALID", verdict[5:]) if good else ("INVALID", verdict[7:])
    words = [tag("p", tag("span", "✔ " if good else "✘ ", aria_hidden="true"), tag("strong", f"RESULT: {word}"), rest, class_="verdict"),
             tag("p", f"{name}, {plural(len(result.cases), 'case')}", class_="file")]
    return tag("div", *words, class_="box " + ("good" if good else "bad"))


def merit(case):
    if case is None:
        return tag("div", tag("p", "figure of merit: none", class_="merit"), tag("p", "There is no valid case."), class_="box")
    samples = len(case.samples)
    words = f"{describe(case)} (case {case.label}): a step of {figure(case.tokens)} tokens took {seconds_text(case['median_s'])}"
    words += f", the median of {plural(samples, 'sample')}."
    figures = [(figure(case["tokens_per_s_rank"]), "token/s per rank"), (figure(case["tflops_causal"]), "model TFLOP/s, causal attention"),
               (bytes_text(case["memory_measured"]), "memory of the worst rank")]
    more = tag("ul", *[tag("li", tag("b", value), " ", unit) for value, unit in figures], class_="merits")
    number = tag("p", "figure of merit: ", tag("b", figure(case["tokens_per_s"], 6), data_v=repr(case["tokens_per_s"])), " token/s", class_="merit")
    return tag("div", number, tag("p", words), more, class_="box")


def origin(book):
    """In one line each: program, ranks and devices, date."""
    sessions = [session for result in book.results for session in result.sessions]
    hashes = listed(dict.fromkeys(f"{s.get('version', '')} ({s.get('git_hash', '')})" for s in sessions), 3)
    devices = listed(dict.fromkeys(device for s in sessions for device in s.get("devices", [])), 3)
    hosts = max((len(set(s.get("hosts", []))) for s in sessions), default=0)
    ranks = max((len(s.get("devices", [])) for s in sessions), default=0)
    dates = sorted(s["started"] for s in sessions if s.get("started"))
    lines = [f"miniTaw {hashes}", f"{plural(ranks, 'rank')} on {plural(hosts, 'node')}: {devices}" if ranks else "",
             dates[0] + (f" to {dates[-1]}" if dates[-1] != dates[0] else "") if dates else ""]
    return tag("div", *[tag("p", line) for line in lines if line], class_="box origin")


def head(book):
    boxes = [verdict_box(result) for result in book.results]
    return tag("div", *boxes, merit(fastest(book.cases)), origin(book), class_="head")


def title_of(book):
    return "miniTaw: " + ", ".join(result.path.stem for result in book.results)


def left_out(sections):
    items = [section.markup() for section in sections]
    return join([tag("h2", "Left out", id="left-out"), tag("ul", *items)]) if items else ""
