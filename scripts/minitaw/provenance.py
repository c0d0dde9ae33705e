# SPDX-License-Identifier: BSD-3-Clause
"""Where a result comes from, as texts for people: program, machine, environment and deck of each
session."""

IN_TEXTS_OF_THEIR_OWN = ("deck", "environment")


def program_of(session):
    """ "0.1.0 (commit)" """
    return f"{session.get('version', '')} ({session.get('git_hash', '')})"


def facts_of(session, of_ranks):
    """Lines of what the session has for all, then of each rank."""
    for name, value in session.items():
        if name not in {*of_ranks, *IN_TEXTS_OF_THEIR_OWN}:
            for one in [value] if isinstance(value, str) else value:
                yield f"{name:<16} {one}"
    names = [name for name in session if name in of_ranks]
    for rank, facts in enumerate(zip(*(session[name] for name in names))):
        told = [f"{name} {one}" for name, one in zip(names, facts) if str(one)]
        yield f"rank {rank:<11} {', '.join(told)}"


def session_texts(file):
    """{title: text}: where a file comes from. A later session's deck that has not been seen before
    is deck-NNNN.toml."""
    decks, environments = {}, []
    for number, session in enumerate(file.sessions):
        name = f"deck-{number:04}.toml" if number else "deck.toml"
        decks.setdefault(session.get("deck", ""), name)
        heading = f"== session {number}, started {session.get('started', '')}"
        lines = [heading, *facts_of(session, file.of_ranks), *session.get("environment", [])]
        environments.append("".join(f"{line}\n" for line in lines))
    texts = {name: deck for deck, name in decks.items()}
    return {"environment": "\n".join(environments), **texts}
