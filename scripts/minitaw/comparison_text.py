# SPDX-License-Identifier: BSD-3-Clause
"""A comparison for people and programs: text and JSON (docs/compare.md)."""

import html
import json
import math

import numpy

from .aspects import worst
from .intervals import Interval
from .sealed import SCHEMA

# Columns of the table: settings, figures, and words, of aspects the most serious one.
SETTINGS = ["case", "schedule", "ranks", "groups", "seq", "B", "M"]
FIGURES = ["base", "new", "ratio", "low", "high"]
WORDS = {
    "time": ["time"],
    "memory": ["memory", "process peak", "device memory"],
    "bytes": ["bytes inside", "bytes between"],
    "loss": ["first loss", "last loss"],
    "verdict": ["verdict"],
}
COLUMNS = [*SETTINGS, *FIGURES, *WORDS]
UNITS = {"seq": "token", "base": "s", "new": "s"}  # all others: none
LEFT = ["schedule", "groups", *WORDS]  # columns of texts


def ranks_text(case):
    """ "4", or "2x2": two replicas of two; "4/2": two share each sequence."""
    text = str(case.ranks // case.replicas)
    if case.replicas > 1:
        text = f"{case.replicas}x{text}"
    return text if case.context == 1 else f"{text}/{case.context}"


def row_of(match):
    case, time = match.case, match.aspects["time"]
    ratio = time.ratio or Interval(math.nan, time.new / time.base, math.nan)
    settings = [case.case, case.schedule, ranks_text(case), case.groups, case.seq,
                case.micro_batch, case.micro_batches]  # fmt: skip
    figures = [f"{time.base:.4g}", f"{time.new:.4g}"]
    figures += [f"{value:.3f}" for value in (ratio.estimate, ratio.low, ratio.high)]
    figures = ["-" if figure == "nan" else figure for figure in figures]
    words = [worst(match.aspects[name] for name in names).word or "-" for names in WORDS.values()]
    return [*map(str, settings), *figures, *words]


def table(matches):
    """Two lines of names and units that begin with #, then one line a case, all aligned."""
    rows = [["#", *COLUMNS], ["#", *(UNITS.get(name, "") for name in COLUMNS)]]
    rows += [["", *row_of(match)] for match in matches]
    columns = []
    for cells in zip(*rows):
        width = max(map(len, cells))
        columns.append([f"{cell:{'<' if cells[0] in LEFT else '>'}{width}}" for cell in cells])
    return "".join(" ".join(cells).rstrip() + "\n" for cells in zip(*columns))


def limit_text(value):
    return "off" if math.isinf(value) else f"{100 * value:.4g} %"


def limits_of(comparison):
    """By which rules was judged."""
    rules, count = comparison.rules, comparison.count
    limits = [f"threshold {limit_text(rules.threshold)}"]
    if rules.quantile:
        limits.append(f"quantile {rules.quantile:g}")
    if rules.looks > 1:
        limits.append(f"the risk is shared by {rules.looks} looks")
    if count > 1:
        limits.append(f"SLOWER and FASTER hold for all {count} intervals at once")
    return ", ".join(limits)


def reasons_of(comparison):
    """One line for each word that needs one."""
    for match in comparison.cases:
        for aspect in match.aspects.values():
            if aspect.reason and aspect.word != "OFF":
                yield f"case {match.case.case}: {aspect.word}: {aspect.reason}"
    if comparison.together:
        mean = comparison.together.ratio
        yield (
            f"all cases together: {comparison.together.word}: new / base = {mean.estimate:.3f}, "
            f"from {mean.low:.3f} to {mean.high:.3f} (geometric mean)"
        )


def as_text(comparison, base, new):
    """For people: notes with # in front, one aligned row per case, the closing line."""
    heading = [f"base: {base}", f"new:  {new}", limits_of(comparison), *comparison.notes]
    before = "".join(f"# {line}\n" for line in heading)
    after = "".join(f"# {line}\n" for line in reasons_of(comparison))
    return f"{before}{table(comparison.cases)}{after}COMPARISON: {comparison.text()}\n"


def as_markdown(comparison):
    """A table for the summary of a CI job."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(row_of, comparison.cases)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    word, _, why = html.escape(comparison.text(), quote=False).partition(":")
    return f"**{word}**:{why}\n\n{table}"


def plain(value):
    """JSON has no NaN: null stands for it, and for a threshold that is off."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(plain, value))
    value = value.item() if isinstance(value, numpy.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def aspect_json(aspect):
    found = {"outcome": aspect.outcome, "word": aspect.word}
    if aspect.units:
        found |= {"units": aspect.units, "base": aspect.base, "new": aspect.new}
    if aspect.name == "time":
        found["ratio"] = aspect.ratio and aspect.ratio._asdict()
    return found | {"reason": aspect.reason}


def case_json(match):
    names = [name for name in match.case.file.settings if name != "identity"]
    return {
        "case": match.case.case,
        "settings": match.case[names].to_dict(),
        "differs": match.differs,
        "measured_by": match.times.unit,
        "measurements_base": len(match.times.base),
        "measurements_new": len(match.times.new),
        "aspects": {name: aspect_json(aspect) for name, aspect in match.aspects.items()},
    }


def as_json(comparison, base, new):
    """One object."""
    rules = vars(comparison.rules)
    found = {
        "program": "scripts/compare",
        "schema": SCHEMA,
        "command": "compare",
        "verdict": comparison.text(),
        "outcome": comparison.outcome,
        "base": base,
        "new": new,
        **{name: value for name, value in rules.items() if name != "allow"},
        "together": comparison.together and aspect_json(comparison.together),
        "notes": comparison.notes,
        "only_base": comparison.only_base,
        "only_new": comparison.only_new,
        "cases": list(map(case_json, comparison.cases)),
    }
    return json.dumps(plain(found), indent=2, ensure_ascii=False) + "\n"
