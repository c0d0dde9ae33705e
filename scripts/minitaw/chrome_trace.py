# SPDX-License-Identifier: BSD-3-Clause
"""Timelines as a Chrome trace in the JSON object format, which Perfetto (ui.perfetto.dev) and
chrome://tracing open. Every rank of every timeline is a process, every lane a thread; messages are
flows from send to receive."""

import json

from .events import PHASES, rows_of

# Threads of a lane: messages of a batch overlap, slices of one thread must not.
MOST_THREADS = 1000
MICROSECONDS = 1e6  # of a second


def name_of(kind, process, thread, text):
    """In the order of their numbers."""
    place = {"ph": "M", "pid": process, "tid": thread}
    order = {"sort_index": thread or process}
    yield {"name": f"{kind}_name"} | place | {"args": {"name": text}}
    yield {"name": f"{kind}_sort_index"} | place | {"args": order}


def names_of(timeline, first, threads, depth):
    """Of the processes, which count from `first`, and their threads."""
    for rank in range(timeline.ranks):
        text = f"{timeline.heading}: rank {rank}, group {timeline.group_of(rank)}"
        yield from name_of("process", first + rank, 0, text)
        for lane, thread in threads.items():
            for row in range(depth.get((rank, lane), 0)):
                text = lane + (f" ({row + 1})" if row else "")
                yield from name_of("thread", first + rank, thread + row, text)


def slice_of(event, process, thread):
    peer = "peer" if event.kind in ("send", "recv") else "root"
    numbers = {
        "shard": event.shard,
        "micro_batch": event.micro_batch,
        peer: event.peer,
        "link": event.link,
    }
    args = {"tick": event.tick, "waited_us": MICROSECONDS * (event.begin - event.ready)}
    args |= {name: number for name, number in numbers.items() if number >= 0}
    return {
        "name": event.text(),
        "cat": PHASES[event.phase][0],
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": MICROSECONDS * event.begin,
        "dur": MICROSECONDS * max(0.0, event.end - event.begin),
        "args": args,
    }


def flow_of(send, received, number):
    """The arrow of a message: (event, process, thread) of both ends. One that ends before it starts
    is not drawn, and one that ends outside of its slice goes astray."""
    (sent, *sender), (event, *receiver) = send, received
    left = (sent.begin + sent.end) / 2
    arrived = min(max(left, event.begin), max(event.begin, event.end))
    flow = {"name": sent.text(), "cat": "message", "id": number}
    for phase, (process, thread), time, more in (
        ("s", sender, left, {}),
        ("f", receiver, arrived, {"bp": "e"}),
    ):
        place = {"ph": phase, "pid": process, "tid": thread}
        yield flow | place | {"ts": MICROSECONDS * time} | more


def trace_of(timeline, first, first_link):
    """Names, slices and arrows; processes and links are counted from these numbers."""
    rows, depth = rows_of(timeline)
    threads = {lane: number * MOST_THREADS + 1 for number, lane in enumerate(timeline.lanes)}
    yield from names_of(timeline, first, threads, depth)
    drawn = [
        (event, first + event.rank, threads[event.lane] + row)
        for event, row in zip(timeline.events, rows)
        if row is not None
    ]
    sends = {entry[0].link: entry for entry in drawn if entry[0].kind == "send"}
    for entry in drawn:
        event = entry[0]
        yield slice_of(*entry)
        if event.kind == "recv" and event.link in sends:
            yield from flow_of(sends[event.link], entry, first_link + event.link)


def chrome_trace(timelines):
    """Times in microseconds."""
    found = []
    first, first_link = 1, 0  # process 0 means the idle process
    for timeline in timelines:
        found += trace_of(timeline, first, first_link)
        first += timeline.ranks
        first_link += 1 + max((event.link for event in timeline.events), default=0)
    notes = {timeline.heading: timeline.note for timeline in timelines if timeline.note}
    trace = {"displayTimeUnit": "ms", "otherData": notes, "traceEvents": found}
    return json.dumps(trace, ensure_ascii=False) + "\n"
