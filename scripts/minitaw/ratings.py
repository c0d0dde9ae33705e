# SPDX-License-Identifier: BSD-3-Clause
"""Offers beside one another: the rating of each result file, its network figure, its energy, and
whether it is official (docs/acceptance.md)."""

import json

import pandas

from .check_rules import official
from .command import write_stdout
from .judgement import rate_of
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


def energy_of(cases):
    """Per token, of the cases that the rating consists of: each length weighs the same."""
    known = [case.energy / (tokens_of(case) * case.steps) for case in cases]
    return float(pandas.Series(known, dtype=float).mean(skipna=False))


def row_of(path, found):
    return {
        "file": path,
        "size": found.size,
        "rating": found.rate if found.bests else None,
        "network": None if found.network is None else rate_of(found.network),
        "energy": energy_of(found.bests),
        "official": not found.reasons,
        "reason": found.reason,
    }


def ranked(offers):
    """A row for each (path, Official), the best of each size first; sizes do not compare."""
    rows = [row_of(path, found) for path, found in offers]
    sizes = [*dict.fromkeys(row["size"] for row in rows)]
    rows.sort(key=lambda row: (sizes.index(row["size"]), -(row["rating"] or 0)))
    counts = dict.fromkeys(sizes, 0)
    for row in rows:
        counts[row["size"]] += 1
        row["rank"] = counts[row["size"]] if row["rating"] else None
        row |= {name: value if exists(value) else None for name, value in row.items()}
    return rows


def texts_of(row):
    """{name of a column: text}"""
    figures = {name: figure(row[name], 6) for name in ("rank", "rating", "network", "energy")}
    kept = "yes" if row["official"] else f"no: {row['reason']}"
    return row | figures | {"size": row["size"] or "none", "official": kept}


def as_text(rows):
    table = pandas.DataFrame(map(texts_of, rows))[[*COLUMNS]].rename(columns=COLUMNS)
    return table.to_string(index=False, justify="left", max_colwidth=None) + "\n"


def compared(paths, is_json):
    """Prints them; the exit code: 0 if all are official, else 1."""
    rows = ranked([(path, official(load(path))) for path in paths])
    write_stdout(json.dumps({"ratings": rows}, indent=2) + "\n" if is_json else as_text(rows))
    return int(not all(row["official"] for row in rows))
