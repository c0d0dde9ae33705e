"""Device counters, and where the results come from."""

import numpy

from ..record import SCHEMA
from .book import LeftOut, Section, at_longest, panels, tokens_text
from .charts import Bar, bar_chart
from .markup import captioned, exists, figure, fold, join, listed, name_cell, number, percent, plural, table, tag
from .results import cut

# Device counters: clock, temperature, power, throttling, energy per token; or why there are none.

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
        rows = [Bar(book.naming(c), [(f"c{book.styles.colour(book.naming(c))} bar", "", energy(c))]) for c in longest if energy(c)]
        if rows:
            name = "Energy: " + "; ".join(part for part in (title, tokens_text(seq)) if part)
            yield captioned(name, bar_chart(rows, name, "all devices, timed steps [J/token]", "J/token"))


def missing(cases):
    """{reason: cases} of those without counters."""
    found = {}
    for case in cases:
        if not has_counters(case):
            said = case["counters"].removeprefix("unavailable").removeprefix(": ")
            said = said or ("nothing read them" if case["status"] == "ok" else "it did not run to its end")
            found.setdefault(said, []).append(case)
    return found


def counters_section(book):
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


# Where the results come from: build, libraries, ranks, command, deck, environment.

BUILD = [("version", "miniTaw"), ("git_hash", "commit"), ("build_type", "build type"), ("compiler", "compiler"), ("compiler_flags", "flags"),
         ("kokkos", "Kokkos"), ("mpi", "MPI"), ("nccl", "NCCL"), ("cuda", "CUDA"), ("driver", "device driver")]


# Of each rank: all that there are, once each.
NODES = [("cpu", "processor"), ("os", "system")]


def build_rows(sessions):
    """A row for each text; where sessions differ, all that there were."""
    rows = [*BUILD, ("libraries", "libraries"), *NODES, ("started", "started (UTC)"), ("deck_path", "deck"), ("overrides", "--set"), ("links", "shaped links")]
    for name, title in rows:
        each = name in dict(NODES)
        values = dict.fromkeys(text for s in sessions for text in (s.get(name, []) if each else [as_text(s.get(name, ""))]))
        values.pop("", None)
        if values:
            shown = tag("ul", *[tag("li", value) for value in values]) if len(values) > 1 else next(iter(values))
            yield [tag("th", title, scope="row"), tag("td", shown)]


def as_text(value):
    return ", ".join(value) if isinstance(value, list) else str(value)


def cell(values, i):
    return str(values[i]) if i < len(values) else "–"


def rank_map(session):
    """Rank, node, device, cores; equal neighbours share a row."""
    devices, hosts = session.get("devices", []), session.get("hosts", [])
    nodes, cores = session.get("nodes", []), session.get("cores", [])
    named = any(not str(host).startswith("node ") for host in hosts)
    columns = [("host", hosts if named or not len(nodes) else []), ("node", nodes), ("device", devices), ("cores", cores)]
    columns = [(name, values) for name, values in columns if len(values)]
    rows = []
    for rank in range(max((len(values) for _, values in columns), default=0)):
        cells = [cell(values, rank) for _, values in columns]
        if rows and rows[-1][1] == cells:
            rows[-1][0][1] = rank
        else:
            rows.append(([rank, rank], cells))
    body = [[str(first) if first == last else f"{first}–{last}", *cells] for (first, last), cells in rows]
    return table(["rank", *[name for name, _ in columns]], body, "Ranks and where they ran") if body else ""


def texts(sessions, name, title):
    """A fold-out for each different text of the sessions."""
    values = {}
    for number, session in enumerate(sessions):
        text = "\n".join(session[name]) if isinstance(session.get(name), list) else session.get(name, "")
        if text:
            values.setdefault(text, []).append(number)
    many = len(values) > 1
    return [fold(title + (f" (session {', '.join(map(str, numbers))})" if many else ""), tag("pre", text, tabindex="0"))
            for text, numbers in values.items()]


def of_file(result):
    first = result.sessions[0]
    parts = [tag("h3", f"{result.letter}: {result.name}" if result.letter else result.name)]
    about = f"Schema {SCHEMA}, {len(result.sessions)} session{'s' if len(result.sessions) > 1 else ''}."
    parts.append(tag("p", about))
    parts.append(table(["what", "value"], list(build_rows(result.sessions)), "Build and libraries", class_="build"))
    maps = dict.fromkeys(rank_map(session) for session in result.sessions)
    parts += [m for m in maps if m]
    commands = dict.fromkeys(session.get("command", "") for session in result.sessions)
    parts += [tag("p", "Command:"), *[tag("pre", command, tabindex="0") for command in commands if command]] if any(commands) else []
    parts += texts(result.sessions, "deck", "Deck")
    parts += texts(result.sessions, "environment", "Environment (variables on the allow-list)")
    parts += texts(result.sessions, "log", "What run printed")
    if not first.get("environment"):
        parts.append(tag("p", "Environment: none of the variables on the allow-list was set."))
    return join(parts)


def provenance_section(book):
    if not any(result.sessions for result in book.results):
        return LeftOut("Provenance", "the file names no session")
    return Section("Provenance", join(of_file(result) for result in book.results if result.sessions), "provenance")
