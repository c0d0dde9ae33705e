# SPDX-License-Identifier: BSD-3-Clause
"""Foreign input of the commands beside result files: archives, predictions, timelines and samples
of meters, named by what is strange about them."""

import gzip
import io
import json
import tarfile


def archive(*members):
    """A tar.gz. members: (name, content), or a TarInfo."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as made_archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                made_archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                made_archive.addfile(info, io.BytesIO(member[1]))
    return packed.getvalue()


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def with_words(size):
    info = tarfile.TarInfo("bundle/x")
    info.pax_headers = {"comment": "x" * size}
    return info


def sparse():
    info = tarfile.TarInfo("bundle/record.h5")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "bundle/record.h5",
        "GNU.sparse.realsize": str(1 << 50),
    }
    return info


def bomb(mebibytes):
    """Zeros in a file of that many MiB."""
    info = tarfile.TarInfo("bundle/added/zeros")
    info.size = mebibytes << 20
    return gzip.compress(info.tobuf()) + gzip.compress(bytes(1 << 20)) * mebibytes


ARCHIVES = {
    "a link to a file": archive(special("bundle/record.h5", tarfile.SYMTYPE, "../canary")),
    "a hard link": archive(special("bundle/record.h5", tarfile.LNKTYPE, "canary")),
    "a device": archive(special("bundle/record.h5", tarfile.CHRTYPE)),
    "a pipe": archive(special("bundle/record.h5", tarfile.FIFOTYPE)),
    "a path upwards": archive(("bundle/../canary", b"x")),
    "an absolute path": archive(("/bundle/record.h5", b"x")),
    "a file twice": archive(("bundle/x", b"x"), ("bundle/x", b"y")),
    "many files": archive(*((f"bundle/{i}", b"") for i in range(2000))),
    "deep folders": archive(("bundle/" + "x/" * 60 + "x", b"")),
    "long words": archive(with_words(1 << 20)),
    "a sparse file": archive(sparse()),
    "1.2 GiB": bomb(1200),
    "no tar": gzip.compress(b"hello"),
    "no gzip": b"hello",
    "nothing": b"",
    "half": archive(("bundle/x", b"x" * 999))[:-20],
    "a name of control characters": archive(("bundle/\x1b]0;x", b"")),
    "sums that are none": archive(
        ("bundle/SHA256SUMS", bytes(range(256)) * 99), ("bundle/record.h5", b"x")
    ),
}

EVENTS = {
    "rank": [0, 1],
    "lane": [0, 0],
    "kind": [0, 0],
    "payload": [0, 0],
    "tick": [0, 1],
    "shard": [0, -1],
    "micro_batch": [0, 0],
    "peer": [-1, 0],
    "link": [-1, -1],
    "ready": [0.0, 0.0],
    "begin": [0.0, 0.5],
    "end": [0.5, 1.0],
}
CODES = {"lane": ["compute"], "kind": ["F"], "payload": ["weights"]}
STRANGE = [None, "x", [], {}, -2, 2**70, 1e308, True, [1], 0.5]


def timelines():
    """{what is strange: text of a file of minitaw predict --timeline}"""

    def text(**parts):
        return json.dumps(
            {
                "timelines": [
                    {"title": "t", "groups": [1, 1], "codes": CODES, "events": EVENTS} | parts
                ]
            }
        )

    found = {
        "nothing": "{}",
        "no timeline": '{"timelines": []}',
        "a list": "[]",
        "null": "null",
        "deep": "[" * 200000,
        "no JSON": "\x00",
    }
    for value in STRANGE:
        for name in EVENTS:
            found[f"{name} {value}"] = text(events=EVENTS | {name: [EVENTS[name][0], value]})
        for part in ("title", "groups", "codes", "events"):
            found[f"{part} {value}"] = text(**{part: value})
        found[f"group {value}"] = text(groups=[1, value])
    return found | {
        "short column": text(events=EVENTS | {"end": [1.0]}),
        "not finite": text(events=EVENTS | {"end": [1.0, float("nan")]}),
    }


def predictions():
    """{what is strange: text of a file of minitaw predict --json}"""
    settings = {
        "schedule": "fsdp",
        "ranks": 4,
        "groups": "2+2",
        "group_count": 2,
        "seq": 256,
        "hidden": 64,
        "replicas": 1,
    }
    case = {
        "settings": settings,
        "fits": True,
        "step_s": 1.5,
        "tokens_per_s": 100.0,
        "memory_bytes": 1000,
        "bytes_between": 5,
    }
    found = {
        "none": '{"cases": []}',
        "deep": "[" * 200000,
        "no ranks": json.dumps({"cases": [case | {"settings": settings | {"ranks": 0}}]}),
        "a list": "[]",
        "no JSON": "x",
        "digits of others": json.dumps(
            {"cases": [case | {"settings": settings | {"seq": "\u00b2"}}]}
        ),
        "many digits": json.dumps({"cases": [case]}).replace("256", "9" * 5000),
    }
    for value in STRANGE:
        for name in case:
            found[f"{name} {value}"] = json.dumps({"cases": [case | {name: value}]})
        for name in settings:
            found[f"setting {name} {value}"] = json.dumps(
                {"cases": [case | {"settings": settings | {name: value}}]}
            )
        found[f"rate {value}"] = json.dumps({"between_bytes_per_s": value, "cases": [case]})
    return found


METERS = {
    name: f"time,watts\n{rest}".encode()
    for name, rest in {
        "year 5 000 000": "157784760000000,100\n",
        "infinite": "inf,100\n",
        "huge": "1e400,1e400\n",
        "negative": "-1e18,100\n",
        "no number": "x,y\n",
        "long field": "2026-07-18T09:30:01Z," + "1" * 200000 + "\n",
        "zero byte": "2026-07-18T09:30:01Z,\0\n",
        "one cell": "2026-07-18T09:30:01Z\n",
        "year 0": "0001-01-01T00:00:00+23:59,5\n",
        "month 13": "2026-13-18T09:30:01Z,5\n",
        "many watts": "2026-07-18T09:30:01Z,1e308\n2026-07-18T09:30:02Z,1e308\n",
        "no text": "\xff\xfe",
    }.items()
}
