# SPDX-License-Identifier: BSD-3-Clause
"""A comparison for people and programs: text and JSON (docs/compare.md)."""

import json
import math

from .aspects import worst
from .intervals import Interval
from .sealed import SCHEMA

# Columns of words of the table: aspects, the most serious of which it shows.
ASPECTS = {
    "time": ["time"],
    "memory": ["memory", "process peak", "device memory"],
    "bytes": ["bytes inside", "bytes between"],
    "loss": ["first loss", "last loss"],
    "verdict": ["verdict"],
}
SETTINGS = ["case", "schedule", "ranks", "groups", "seq", "B", "M"]
FIGURES = ["base", "new", "ratio", "low", "high"]
COLUMNS = [*SETTINGS, *FIGURES, *ASPECTS]
UNITS = {"seq": "token", "base": "s", "new": "s"}  # all others: none
LEFT = ["schedule", "groups", *ASPECTS]  # columns of texts


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
    figures = [f"{seconds:.4g}" for seconds in (time.base, time.new)]
    figures += [f"{value:.3f}" for value in (ratio.estimate, ratio.low, ratio.high)]
    return [
        *map(str, settings),
        *("-" if figure == "nan" else figure for figure in figures),
        *(worst(match.aspects[name] for name in names).word or "-" for names in ASPECTS.values()),
    ]


def table(matches):
    """Two lines of names and units that begin with #, then one line a case, all aligned."""
    rows = [COLUMNS, [UNITS.get(name, "") for name in COLUMNS], *map(row_of, matches)]
    columns = []
    for cells in zip(*rows):
        align = str.ljust if cells[0] in LEFT else str.rjust
        width = max(map(len, cells))
        columns.append([align(cell, width) for cell in cells])
    lines = [" ".join(cells) for cells in zip(*columns)]
    marks = ["#", "#", *(" " for _ in matches)]
    return "".join(f"{mark} {line}".rstrip() + "\n" for mark, line in zip(marks, lines))


def limit_text(value):
    return "off" if math.isinf(value) else f"{100 * value:.4g} %"


def limits_of(comparison):
    """By which rules was judged."""
    rules, count = comparison.rules, comparison.count
    limits = [
        f"threshold {limit_text(rules.threshold)}",
        f"memory {limit_text(rules.memory_threshold)}",
        f"confidence {limit_text(rules.confidence)}",
    ]
    if rules.quantile:
        limits.append(f"quantile {rules.quantile:g}")
    if rules.looks > 1:
        limits.append(f"which is shared by {rules.looks} looks")
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


# JSON.


def finite(value):
    """JSON has no other numbers: null stands for NaN, and for a threshold that is off."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain(value):
    """Of a number of numpy."""
    return value.item()


def aspect_json(aspect):
    found = {"outcome": aspect.outcome, "word": aspect.word}
    if aspect.units:
        sides = {"base": finite(aspect.base), "new": finite(aspect.new)}
        found |= {"units": aspect.units} | sides
    if aspect.name == "time":
        found["ratio"] = aspect.ratio and aspect.ratio._asdict()
    return found | {"reason": aspect.reason}


def case_json(match):
    names = [name for name in match.case.file.settings if name != "identity"]
    return {
        "case": match.case.case,
        "settings": {name: match.case[name] for name in names},
        "differs": match.differs,
        "measured_by": match.times.unit,
        "measurements_base": len(match.times.base),
        "measurements_new": len(match.times.new),
        "aspects": {name: aspect_json(aspect) for name, aspect in match.aspects.items()},
    }


def as_json(comparison, base, new):
    """One object; figures that do not exist are null."""
    rules = vars(comparison.rules).items()
    found = {
        "program": "minitaw compare",
        "schema": SCHEMA,
        "command": "compare",
        "verdict": comparison.text(),
        "outcome": comparison.outcome,
        "base": base,
        "new": new,
        **{name: finite(value) for name, value in rules if name != "allow"},
        "together": comparison.together and aspect_json(comparison.together),
        "notes": comparison.notes,
        "only_base": comparison.only_base,
        "only_new": comparison.only_new,
        "cases": list(map(case_json, comparison.cases)),
    }
    return json.dumps(found, indent=2, ensure_ascii=False, default=plain) + "\n"
