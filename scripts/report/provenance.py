"""Where the results come from: build, libraries, ranks, command, deck, environment."""

from .book import LeftOut, Section
from .html import fold, join, table, tag

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
    about = f"Schema {result.schema}, {len(result.sessions)} session{'s' if len(result.sessions) > 1 else ''}."
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


def section(book):
    if not any(result.sessions for result in book.results):
        return LeftOut("Provenance", "the file names no session")
    return Section("Provenance", join(of_file(result) for result in book.results if result.sessions), "provenance")
