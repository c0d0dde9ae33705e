# SPDX-License-Identifier: BSD-3-Clause
"""Foreign input of the commands beside result files: archives, predictions and timelines, named
by what is strange about them."""

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
    info = tarfile.TarInfo("x.h5")
    info.pax_headers = {"comment": "x" * size}
    return info


def sparse():
    info = tarfile.TarInfo("x.h5")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "x.h5",
        "GNU.sparse.realsize": str(1 << 50),
    }
    return info


def sparse_of_gnu(blocks):
    """As GNU tar wrote them; so many blocks go on with the list of its parts."""
    info = tarfile.TarInfo("x.h5")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(header)[0]
    more = bytearray(512)
    more[504] = 1
    return gzip.compress(bytes(header) + bytes(more) * blocks)


def of_negative_size():
    info = tarfile.TarInfo("x.h5")
    info.size = -5
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))


def bomb(mebibytes):
    """Zeros in a file of that many MiB."""
    info = tarfile.TarInfo("zeros.h5")
    info.size = mebibytes << 20
    return gzip.compress(info.tobuf()) + gzip.compress(bytes(1 << 20)) * mebibytes


ARCHIVES = {
    "a link to a file": archive(special("x.h5", tarfile.SYMTYPE, "../canary")),
    "a hard link": archive(special("x.h5", tarfile.LNKTYPE, "canary")),
    "a device": archive(special("x.h5", tarfile.CHRTYPE)),
    "a pipe": archive(special("x.h5", tarfile.FIFOTYPE)),
    "a folder": archive(special("x.h5", tarfile.DIRTYPE)),
    "a path upwards": archive(("../x.h5", b"x")),
    "an absolute path": archive(("/x.h5", b"x")),
    "a file twice": archive(("x.h5", b"x"), ("x.h5", b"y")),
    "many files": archive(*((f"{i}.h5", b"") for i in range(2000))),
    "deep folders": archive(("x/" * 60 + "x.h5", b"")),
    "a long name": archive(("x" * 300 + ".h5", b"")),
    "long words": archive(with_words(1 << 20)),
    "a sparse file": archive(sparse()),
    "a long sparse file": sparse_of_gnu(1 << 17),
    "1.2 GiB": bomb(1200),
    "a negative size": of_negative_size(),
    "no result": archive(("x.h5", b"hello")),
    "a verdict alone": archive(("verdict.txt", b"official: yes")),
    "no tar": gzip.compress(b"hello"),
    "no gzip": b"hello",
    "nothing": b"",
    "half": archive(("x.h5", b"x" * 999))[:-20],
    "a name of control characters": archive(("\x1b]0;x.h5", b"")),
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
