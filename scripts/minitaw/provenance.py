# SPDX-License-Identifier: BSD-3-Clause
"""Where a result comes from, as texts for people: program, machine, environment, deck and log of
each session."""

# What the provenance of a session holds, in the words of a reader.
FACTS = {
    "version": "miniTaw",
    "git_hash": "commit",
    "build_type": "build type",
    "compiler": "compiler",
    "compiler_flags": "compiler flags",
    "kokkos": "Kokkos",
    "mpi": "MPI",
    "nccl": "NCCL",
    "cuda": "CUDA",
    "driver": "device driver",
    "libraries": "libraries",
    "deck_path": "deck",
    "overrides": "--set",
    "links": "shaped links",
    "command": "command",
}
OF_NODE = {"cpu": "processor ", "os": "system "}
OF_RANK = {"hosts": "", "devices": "", "cores": "cores "}


def texts_of(session, name):
    """One or more, as a list."""
    value = session.get(name, [])
    return [value] if isinstance(value, str) else [str(one) for one in value]


def program_of(session):
    """ "0.1.0 (commit)" """
    return f"{session.get('version', '')} ({session.get('git_hash', '')})"


def facts_of_rank(session, rank, names):
    found = []
    for name, what in names.items():
        values = session.get(name, [])
        if rank < len(values):
            found.append(f"{what}{values[rank]}")
    return ", ".join(found)


def facts_of(session):
    """(title, value) of program, nodes and ranks."""
    for name, title in FACTS.items():
        for value in texts_of(session, name):
            yield title, value
    nodes = list(session.get("nodes", []))
    for node in dict.fromkeys(nodes):
        for name, what in OF_NODE.items():
            yield f"node {node}", facts_of_rank(session, nodes.index(node), {name: what})
    for rank in range(len(session.get("hosts", []))):
        yield f"rank {rank}", facts_of_rank(session, rank, OF_RANK)


def environment_text(session):
    """Versions, command, nodes, ranks and recorded environment."""
    lines = [f"{title:<16} {value}" for title, value in facts_of(session) if value]
    return lines_text([*lines, *session.get("environment", [])])


def log_text(session):
    return lines_text(session.get("log", [])) or "no log in this record\n"


def lines_text(lines):
    return "".join(f"{line}\n" for line in lines)


def by_session(result, text_of):
    parts = []
    for number, session in enumerate(result.sessions):
        started = session.get("started", "")
        parts.append(f"== session {number}, started {started}\n{text_of(session)}")
    return "\n".join(parts)


def session_texts(result):
    """{name of a file: text}: where the result comes from. A later session's deck that has not been
    seen before is deck-NNNN.toml."""
    decks = {}
    for number, session in enumerate(result.sessions):
        name = f"deck-{number:04}.toml" if number else "deck.toml"
        decks.setdefault(session.get("deck", ""), name)
    return {
        "environment.txt": by_session(result, environment_text),
        **{name: deck for deck, name in decks.items()},
        "log.txt": by_session(result, log_text),
    }
