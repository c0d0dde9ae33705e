"""Device counters: clock, temperature, power, throttling, energy per token; or why there are none."""

import numpy

from . import bars
from .book import LeftOut, Section
from .group import at_longest, panels, tokens_text
from .html import figure as html_figure
from .html import join, name_cell, number, table, tag
from .text import exists, figure, listed, percent, plural
from .throughput import cut

# Bits of NVML's mask of reasons why clocks are lowered (nvmlClocksEventReasons) that mean heat or power.
REASONS = {0x4: "power limit", 0x8: "hardware slow-down", 0x20: "heat (driver)", 0x40: "heat (hardware)", 0x80: "power brake"}


def device(case, name):
    """Values [sample, rank] of a counter; empty where it is unavailable."""
    return case.get(f"device/{name}")


def has_counters(case):
    return device(case, "clock").size or exists(case["energy_per_token"])


def energy(case):
    """J per token; None without a counter."""
    return case["energy_per_token"] if exists(case["energy_per_token"]) else None


def reasons_of(case):
    """Why the device was slowed, in words, each with its share of the samples."""
    masks = device(case, "throttle")
    if not masks.size:
        return ""
    masks = masks.astype(numpy.uint64)
    found = []
    for bit, name in REASONS.items():
        share = float(((masks & numpy.uint64(bit)) != 0).any(axis=-1).mean())
        if share:
            found.append(f"{name} {percent(share, 0)}")
    return ", ".join(found)


def range_of(values):
    values = values[numpy.isfinite(values)] if values.size else values
    return f"{figure(float(values.min()))} – {figure(float(values.max()))}" if values.size else "–"


def row_of(case, book):
    return [tag("th", case.label, scope="row"), name_cell(book.naming(case)), number(f"{case['ranks']}"), number(f"{case['seq']}"),
            number(range_of(device(case, "clock")), case["clock_min"]), number(range_of(device(case, "memory_clock"))),
            number(figure(case["temperature_max"]), case["temperature_max"]), number(figure(case["power_mean"]), case["power_mean"]),
            number(figure(case["energy_per_token"]), case["energy_per_token"]), number(percent(case["throttled"], 0), case["throttled"]),
            tag("td", reasons_of(case) or "–")]


HEAD = ["case", "schedule", "ranks", "S [token]", "clock [MHz]", "memory clock [MHz]", "hottest [°C]", "power, all ranks [W]", "energy [J/token]",
        "slowed", "by (share of samples)"]


def charts(cases, book):
    for title, some in panels(cases):
        seq, longest = at_longest(some)
        rows = [bars.Bar(book.naming(c), [(f"c{book.styles.colour(book.naming(c))} bar", "", energy(c))]) for c in longest if energy(c)]
        if rows:
            name = "Energy: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
            yield html_figure(name, bars.bar_chart(rows, name, "all devices, timed steps [J/token]", "J/token"))


def missing(cases):
    """{reason: cases} of those without counters."""
    found = {}
    for case in cases:
        if not has_counters(case):
            said = case["counters"].removeprefix("unavailable").removeprefix(": ")
            older = "files before schema 4 have none" if case.file.schema < 4 else "nothing read them"
            said = said or (older if case["status"] == "ok" else "it did not run to its end")
            found.setdefault(said, []).append(case)
    return found


def section(book):
    known = [case for case in book.cases if has_counters(case)]
    reasons = missing(book.cases)
    if not known:
        said = missing([case for case in book.cases if case["status"] == "ok"]) or reasons
        return LeftOut("Device counters", "unavailable: " + "; ".join(said or ["no case was run"]))
    slowed = [case for case in known if case["throttled"] > 0]
    words = f"In {len(slowed)} of {plural(len(known), 'case')} a device was slowed by heat or power: {listed(c.label for c in slowed)}." \
        if slowed else "No device was slowed by heat or power during a timed step."
    sources = listed(dict.fromkeys(case["counters"] for case in known if case["counters"]))
    content = [tag("p", words, f" Read through {sources}." if sources else "", " Counters of the devices alone: not of hosts and fans.")]
    content += cut(list(charts(known, book))) if any(energy(case) for case in known) else []
    content.append(table(HEAD, [row_of(case, book) for case in known], "Device counters"))
    for reason, cases in reasons.items():
        content.append(tag("p", f"{plural(len(cases), 'case')} without: {reason} ({listed(case.label for case in cases)})."))
    return Section("Device counters", join(content), "counters")
