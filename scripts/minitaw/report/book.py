"""What every section is given: which cases belong together, what lines are called; and the top of the page."""

from dataclasses import dataclass

from ..record import describe, fastest, verdict_of
from .markup import Markup, Styles, bytes_text, count_text, figure, join, listed, plural, seconds_text, tag

# Which cases belong together: panels (all settings equal but schedule and sequence length) and lines in them.

# In the order in which they tell panels apart; one that follows from those before it is not named again.
SETTINGS = ["ranks", "groups", "replicas", "hidden", "layers", "dtype", "recompute", "micro_batches", "micro_batch", "micro_batch_per_rank",
            "vocab", "heads", "kv_heads", "ffn", "data", "attention", "transport", "seed", "learning_rate"]
NAMES = {"micro_batches": "M =", "micro_batch": "B =", "micro_batch_per_rank": "B of each rank", "vocab": "vocabulary",
         "learning_rate": "learning rate", "ffn": "feed-forward width"}
COUNTED = {"ranks": "rank", "layers": "layer", "heads": "head", "kv_heads": "key/value head"}
MOST_LINES = 8     # of a panel; of more the schedules are shown family by family
MOST_PANELS = 24   # of a section


def setting_text(name, value):
    if name in COUNTED:
        return plural(value, COUNTED[name])
    if name == "groups":
        return f"groups {value}"
    if name == "replicas":
        return f"{value} copies" if value != 1 else "1 copy"
    if name in ("dtype", "recompute"):
        return str(value) if name == "dtype" else f"recompute {value}"
    if name == "data":
        return f"tokens from {value}" if value != "synthetic" else "synthetic tokens"
    return f"{NAMES.get(name, name)} {value}"


def telling(cases, settings=SETTINGS):
    """The settings that tell these cases apart, without those that follow from others."""
    chosen = []
    for name in settings:
        before = {tuple(case[s] for s in chosen) for case in cases}
        after = {tuple(case[s] for s in [*chosen, name]) for case in cases}
        if len(after) > len(before):
            chosen.append(name)
    return chosen


def shared_settings(cases):
    """Texts of the settings that all cases have in common."""
    texts = []
    for name in SETTINGS:
        values = {case[name] for case in cases}
        if len(values) == 1 and (value := values.pop()) not in ("", "auto") and (name, value) != ("replicas", 1):
            texts.append(setting_text(name, value))
    return texts


def panels(cases):
    """[(title, cases)], in the order of the file. The title says what tells the panel from the others."""
    names = telling(cases)
    found = {}
    for case in cases:
        found.setdefault(tuple(case[name] for name in names), []).append(case)
    return [(", ".join(setting_text(n, v) for n, v in zip(names, key)), some) for key, some in found.items()]


def repeated(cases):
    """Whether files hold the same settings: then a line is one of a file."""
    seen = {}
    for case in cases:
        seen.setdefault(case["identity"], set()).add(case.file.letter)
    return any(len(letters) > 1 for letters in seen.values())


class Naming:
    """Names of lines: the schedule, with its file where several files have the same settings."""

    def __init__(self, cases):
        self.with_file = repeated(cases)

    def __call__(self, case):
        return case["schedule"] + (f" ({case.file.letter})" if self.with_file else "")


def family(name):
    """tawpipe of tawpipe:cco=off."""
    return name.split(":")[0].split(" ")[0]


def split_families(cases, naming):
    """[(suffix of the title, cases drawn, cases for comparison)]: one entry if there are few schedules."""
    names = dict.fromkeys(naming(case) for case in cases)
    if len(names) <= MOST_LINES:
        return [("", cases, [])]
    families = dict.fromkeys(family(name) for name in names)
    single = [f for f in families if sum(family(n) == f for n in names) == 1]
    chosen = [[f] for f in families if f not in single]
    chosen += [single[i:i + MOST_LINES] for i in range(0, len(single), MOST_LINES)]
    parts = []
    for some in chosen:
        inside = [case for case in cases if family(naming(case)) in some]
        parts.append((", ".join(some), inside, [case for case in cases if family(naming(case)) not in some]))
    return parts


def lines_of(cases, naming):
    """{name: cases}, sorted by sequence length."""
    found = {}
    for case in cases:
        found.setdefault(naming(case), []).append(case)
    return {name: sorted(some, key=lambda case: case["seq"]) for name, some in found.items()}


def at_longest(cases):
    """The longest sequence that has a valid case, and the cases at it."""
    lengths = [case["seq"] for case in cases if case.valid] or [case["seq"] for case in cases]
    return max(lengths), [case for case in cases if case["seq"] == max(lengths)]


def tokens_text(seq):
    return f"{count_text(seq)} tokens"


# The top of the page: may this result be quoted, and what is its figure of merit.

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


# What every section is given, and what it gives back.

class Book:
    """All results, with one look for each line on the whole page."""

    def __init__(self, results):
        self.results = results
        self.cases = [case for result in results for case in result.cases]
        self.valid = [case for case in self.cases if case.valid]
        self.naming = Naming(self.cases)
        self.styles = Styles(self.naming(case) for case in self.cases)


@dataclass
class Section:
    title: str
    content: Markup
    id: str

    def markup(self):
        heading = tag("h2", self.title, id=self.id)
        return tag("section", heading, self.content, aria_labelledby=self.id, class_=f"s-{self.id}")


@dataclass
class LeftOut:
    """A section that the files have no data for."""
    title: str
    reason: str

    def markup(self):
        return tag("li", tag("strong", self.title), f": {self.reason}")
