# SPDX-License-Identifier: BSD-3-Clause
"""Pages have the numbers of the records, and those that the program gives in seconds."""

import json
import re
import sys

from programs import MINITAW, REPOSITORY, call, minitaw, output_of

CHECK = REPOSITORY / "benchmarks/results/check_pages.py"
MIB = 2**20


def test_tables_have_the_numbers_of_records():
    output_of(call(sys.executable, CHECK, "host", "links", "nodes", "slices", "rivals"))


def test_the_table_of_a_plan_is_that_of_the_program():
    output_of(call(sys.executable, CHECK, "--minitaw", MINITAW, "plan"))


def test_a_changed_number_is_found(monkeypatch):
    monkeypatch.syspath_prepend(CHECK.parent)
    check = __import__("check_pages")
    row = "| `1f1b` | 8.0 | 1.95 (5.82) | 1.71 (51.07) |"
    said = f"# docs/performance.md\n## Slow links between nodes\n{row}\n- Up to 400 Mbit/s\n"
    assert [*check.missing(said)] == []
    swapped = ("1.95 (5.82) | 1.71 (51.07)", "1.71 (51.07) | 1.95 (5.82)")
    for old, new in (("1.71", "1.72"), ("400", "401"), swapped):
        assert len([*check.missing(said.replace(old, new))]) == 1
    assert len([*check.missing(said.replace("Slow", "Fast"))]) == 2


def expected_of(cases):
    """Memory at each length, bytes inside and between at the shortest, ticks; by schedule."""
    of_schedule = {}
    for case in cases:
        of_schedule.setdefault(case["settings"]["schedule"], []).append(case)
    for name, lengths in of_schedule.items():
        sizes = [case["memory_bytes"]["worst"]["total"] for case in lengths]
        moved = lengths[0]["bytes_per_step"]
        sizes += [moved[where]["total"] for where in ("inside", "between")]
        ticks = lengths[0]["ticks"]["total"]
        yield name, [*(f"{size / MIB:.2f}" for size in sizes), str(ticks)]


def test_the_expected_output_of_small_is_planned():
    deck = REPOSITORY / "inputs/acceptance/small.toml"
    plan = json.loads(output_of(minitaw("plan", deck, "--json")))
    page = (REPOSITORY / "docs/acceptance.md").read_text()
    rows = re.findall(r"^(\w\S*)((?: +\d+\.\d\d){5} +\d+)$", page, re.MULTILINE)
    said = {name: numbers.split() for name, numbers in rows}
    assert said == dict(expected_of(plan["cases"]))
