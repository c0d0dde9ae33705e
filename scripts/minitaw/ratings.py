# SPDX-License-Identifier: BSD-3-Clause
"""Offers beside one another: the rating of each result file, its network figure, its energy, and
whether it is official (docs/run-rules.md)."""

import json

import pandas

from .check_rules import official
from .command import write_stdout
from .numbers import exists, figure
from .record import load, tokens_of

COLUMNS = {
    "rank": "rank",
    "file": "file",
    "size": "size",
    "rating": "rating, tokens/s",
    "network": "network figure, tokens/s",
    "energy": "energy, J/token",
    "official": "official",
}


def rate_of(case):
    return tokens_of(case) / case.step


def energy_of(cases):
    """Per token, of the cases that the rating consists of: each length weighs the same."""
    known = [case.energy / (tokens_of(case) * case.steps) for case in cases]
    return float(pandas.Series(known, dtype=float).mean(skipna=False))


def row_of(path):
    found = official(load(path))
    return {
        "file": path,
        "size": found.size,
        "rating": found.rate if found.bests else None,
        "network": None if found.network is None else rate_of(found.network),
        "energy": energy_of(found.bests),
        "official": not found.reasons,
        "reason": found.reason,
    }


def ranked(paths):
    """The rows of all files, the best of each size first; sizes do not compare."""
    rows = [row_of(path) for path in paths]
    sizes = [*dict.fromkeys(row["size"] for row in rows)]
    rows.sort(key=lambda row: (sizes.index(row["size"]), -(row["rating"] or 0)))
    counts = dict.fromkeys(sizes, 0)
    for row in rows:
        counts[row["size"]] += 1
        row["rank"] = counts[row["size"]] if row["rating"] else None
        row |= {name: value if exists(value) else None for name, value in row.items()}
    return rows


def as_text(rows):
    shown = [
        row
        | {name: figure(row[name], 6) for name in ("rank", "rating", "network", "energy")}
        | {"size": row["size"] or "none", "official": f"no: {row['reason']}"}
        | ({"official": "yes"} if row["official"] else {})
        for row in rows
    ]
    table = pandas.DataFrame(shown)[[*COLUMNS]].rename(columns=COLUMNS)
    return table.to_string(index=False, justify="left", max_colwidth=None) + "\n"


def compared(paths, is_json):
    """Prints them; the exit code: 0 if all are official, else 1."""
    rows = ranked(paths)
    write_stdout(json.dumps({"ratings": rows}, indent=2) + "\n" if is_json else as_text(rows))
    return int(not all(row["official"] for row in rows))
