# SPDX-License-Identifier: BSD-3-Clause
"""Where a result comes from, as texts for people: program, machine, environment and deck of each
session."""

from .layout import layout

IN_TEXTS_OF_THEIR_OWN = ("deck", "environment")


def program_of(session):
    """ "0.1.0 (commit)" """
    return f"{session.get('version', '')} ({session.get('git_hash', '')})"


def lines_text(lines):
    return "".join(f"{line}\n" for line in lines)


def facts_of(session):
    """Lines of what the session has for all, then of each rank."""
    of_ranks = []
    for name, value in session.items():
        if layout().of_session[name].axes == ("J",):
            of_ranks.append([f"{name} {one}" if str(one) else "" for one in value])
        elif name not in IN_TEXTS_OF_THEIR_OWN:
            for one in [value] if isinstance(value, str) else value:
                yield f"{name:<16} {one}"
    for rank, facts in enumerate(zip(*of_ranks)):
        yield f"rank {rank:<11} {', '.join(filter(None, facts))}"


def environment_text(session):
    """Versions, command, ranks and recorded environment."""
    return lines_text([*facts_of(session), *session.get("environment", [])])


def by_session(result, text_of):
    parts = []
    for number, session in enumerate(result.sessions):
        started = session.get("started", "")
        parts.append(f"== session {number}, started {started}\n{text_of(session)}")
    return "\n".join(parts)


def session_texts(result):
    """{title: text}: where the result comes from. A later session's deck that has not been seen
    before is deck-NNNN.toml."""
    decks = {}
    for number, session in enumerate(result.sessions):
        name = f"deck-{number:04}.toml" if number else "deck.toml"
        decks.setdefault(session.get("deck", ""), name)
    return {
        "environment": by_session(result, environment_text),
        **{name: deck for deck, name in decks.items()},
    }
