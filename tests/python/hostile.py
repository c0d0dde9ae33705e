# SPDX-License-Identifier: BSD-3-Clause
"""Result files that somebody else may have made: damaged or hostile, each with a right seal, named
by what was done to a sound one.

damages(seed, count) gives the special ones and a random choice of all others: something done to one
of the datasets.
"""

import gzip
import io
import json
import random
import tarfile
from dataclasses import dataclass
from collections.abc import Callable

import files
import h5py
import numpy
from minitaw import layout, seal

CANARY = "what-only-its-owner-may-read"  # in a file beside the results
ROWS = 2**31


@dataclass
class Damage:
    name: str
    change: Callable  # of an open h5py.File
    # True: by everybody; "scripts": by those, as minitaw does not read it; False: it may be used
    is_refused: object = True
    on_bytes: Callable = None  # of the HDF5 file instead


def paths_of(file):
    """Of all datasets that layout.txt knows."""
    known = layout.layout()
    parts = [
        (f"cases/{case}/{name}", entry)
        for case in ("0000", "0002")
        for name, entry in known.of_case.items()
    ]
    parts += [(f"summary/{name}", entry) for name, entry in known.columns.items()]
    parts += [
        (f"{folder}/{name}", entry)
        for folder in ("provenance", "provenance/resumed/0001")
        for name, entry in known.of_session.items()
    ]
    return [(path, entry) for path, entry in parts if path in file]


def sound(sample, target):
    """A small result with timelines, sessions and a case that failed."""
    files.make(sample, target, [(0, {}, {}), (1, {}, {}), (6, {}, {})])
    return target


def made(source, target, damage):
    """Writes a copy with a damage, sealed."""
    image = source.read_bytes()[seal.SEAL_BYTES :]
    if damage.on_bytes:
        image = damage.on_bytes(image)
    else:
        target.write_bytes(image)
        with h5py.File(target, "r+") as file:
            damage.change(file)
        image = target.read_bytes()
    target.write_bytes(seal.seal_of(seal.SCHEMA, image) + image)


def replaced(file, path, **options):
    """A dataset in place of one."""
    del file[path]
    return file.create_dataset(path, **options)


def text_type():
    return h5py.string_dtype()


# What can be done to a dataset: functions of file, path and entry.


def removed(file, path, entry):
    del file[path]


def as_group(file, path, entry):
    del file[path]
    file.create_group(path)


def link_to(make):
    def change(file, path, entry):
        del file[path]
        file[path] = make(path)

    return change


def second_link(file, path, entry):
    other = "summary/first_loss" if path != "summary/first_loss" else "summary/last_loss"
    del file[path]
    file[path] = file[other]


def other_type(file, path, entry):
    shape = file[path].shape
    text = entry.kind == "text"
    replaced(
        file,
        path,
        data=numpy.ones(shape) if text else numpy.full(shape, "x", object),
        dtype=float if text else text_type(),
    )


def reference(file, path, entry):
    replaced(file, path, data=file["cases"].ref, dtype=h5py.ref_dtype)


def compound(file, path, entry):
    replaced(file, path, data=numpy.zeros(file[path].shape, [("a", int), ("b", float)]))


def fixed_text(file, path, entry):
    replaced(file, path, data=numpy.full(file[path].shape, b"x" * 9, "S9"))


def more_axes(file, path, entry):
    values = file[path][()]
    dtype = file[path].dtype
    replaced(
        file,
        path,
        data=numpy.broadcast_to(
            numpy.asarray(values, object if entry.kind == "text" else None), (2, *file[path].shape)
        ),
        dtype=dtype,
    )


def claimed(**options):
    """An extent of 2^31 rows that take no bytes."""

    def change(file, path, entry):
        dtype, axes = file[path].dtype, max(1, file[path].ndim)
        replaced(
            file,
            path,
            shape=(ROWS, *[1] * (axes - 1)),
            dtype=dtype,
            chunks=(1024, *[1] * (axes - 1)),
            **options,
        )

    return change


def compressed(file, path, entry):
    values, dtype = file[path][()], file[path].dtype
    replaced(
        file, path, data=numpy.atleast_1d(values), dtype=dtype, chunks=True, compression="gzip"
    )


def outside(file, path, entry):
    replaced(
        file,
        path,
        shape=file[path].shape or (1,),
        dtype="u1",
        external=[("canary", 0, len(CANARY))],
    )


def virtual(file, path, entry):
    shape = file[path].shape or (1,)
    sources = h5py.VirtualLayout(shape=shape, dtype=float)
    sources[...] = h5py.VirtualSource("canary.h5", "x", shape=shape)
    del file[path]
    file.create_virtual_dataset(path, sources)


def longer(file, path, entry):
    """One row more than others have."""
    values = file[path][()]
    replaced(file, path, data=numpy.concatenate([values, values[:1]]), dtype=file[path].dtype)


def empty(file, path, entry):
    replaced(file, path, shape=(0,) * file[path].ndim, dtype=file[path].dtype)


def null_space(file, path, entry):
    dtype = file[path].dtype
    replaced(file, path, data=h5py.Empty(dtype))


def filled(value):
    def change(file, path, entry):
        if file[path].size:
            file[path][...] = value

    return change


def strange_text(file, path, entry):
    values = "\x1b]0;owned\x07\x1b[2J\u202e\ud7ff" + "<script>" * 500
    replaced(file, path, data=numpy.full(file[path].shape, values, object), dtype=text_type())


def no_unicode(file, path, entry):
    replaced(
        file, path, data=numpy.full(file[path].shape, b"\xff\xfe\x80", object), dtype=text_type()
    )


def is_array(entry):
    return bool(entry.axes)


def is_number(entry):
    return entry.kind != "text"


def is_text(entry):
    return entry.kind == "text"


def always(entry):
    return True


# {name: (change, which entries, whether the file is then refused by everybody)}
CHANGES = {
    "is removed": (removed, always, lambda entry: entry.missing == "required"),
    "is a group": (as_group, always, always),
    "is a soft link": (link_to(lambda path: h5py.SoftLink("/summary/case")), always, always),
    "is a soft link to nowhere": (link_to(lambda path: h5py.SoftLink("/none")), always, always),
    "is a link to itself": (link_to(lambda path: h5py.SoftLink(f"/{path}")), always, always),
    "is an external link": (
        link_to(lambda path: h5py.ExternalLink("canary.h5", "/x")),
        always,
        always,
    ),
    "is another dataset once more": (second_link, always, always),
    "has another type": (other_type, always, always),
    "is a reference": (reference, always, always),
    "is a compound": (compound, always, always),
    "has texts of fixed length": (fixed_text, always, always),
    "has one axis more": (more_axes, always, always),
    "claims 2^31 rows": (claimed(), always, always),
    "claims 2^31 rows, compressed": (claimed(compression="gzip"), always, always),
    "is compressed": (compressed, always, always),
    "lies in another file": (outside, always, always),
    "is virtual": (virtual, always, always),
    "has one row more": (
        longer,
        lambda entry: is_array(entry) and entry.axes[0] not in ("*",),
        lambda entry: entry.axes[0] in ("C", "P", "K", "L"),
    ),
    "is empty": (empty, is_array, lambda entry: entry.axes[0] == "C" or entry.of_valid),
    "has no space": (null_space, always, always),
    "is NaN": (filled(numpy.nan), lambda entry: entry.kind == "real", lambda entry: False),
    "is infinite": (filled(numpy.inf), lambda entry: entry.kind == "real", lambda entry: False),
    "is -1": (
        filled(-1),
        lambda entry: is_number(entry) and entry.type != "bits",
        lambda entry: False,
    ),
    "is 0": (filled(0), is_number, lambda entry: entry.type == "count"),
    "is 2^62": (filled(2**62), is_number, lambda entry: False),
    "is 1e300": (filled(1e300), lambda entry: entry.kind == "real", lambda entry: False),
    "has control characters": (strange_text, is_text, lambda entry: False),
    "is no UTF-8": (no_unicode, is_text, lambda entry: False),
}


# Special ones.


def cycle(file):
    file["cases/0001/again"] = file["cases"]


def deep(file):
    group = file
    for _ in range(200):
        group = group.create_group("x")


def many_groups(file):
    for number in range(2000):
        file.create_group(f"screen/{number}")


def named_type(file):
    file["provenance/type"] = numpy.dtype([("a", int)])


def hole_in_cases(file):
    file.move("cases/0001", "cases/0007")


def case_more(file):
    file.copy("cases/0001", "cases/0003")


def no_settings(file):
    del file["cases/0001/settings"]


def no_case(file):
    del file["cases/0001"]


def hole_in_sessions(file):
    file.move("provenance/resumed/0001", "provenance/resumed/0009")


def other_session(file):
    for path in ("summary/session", *(f"cases/{case}/session" for case in file["cases"])):
        file[path][...] = 99


def many_ranks(file):
    for path in ("summary/ranks", *(f"cases/{case}/settings/ranks" for case in file["cases"])):
        file[path][...] = 2**40
    for path in ("summary/groups", *(f"cases/{case}/settings/groups" for case in file["cases"])):
        file[path][...] = str(2**40)


def other_groups(value):
    def change(file):
        for path in (
            "summary/groups",
            *(f"cases/{case}/settings/groups" for case in file["cases"]),
        ):
            file[path][...] = value

    return change


def in_summary_and_cases(name, value):
    def change(file):
        for path in (
            f"summary/{name}",
            *(f"cases/{case}/settings/{name}" for case in file["cases"]),
        ):
            file[path][...] = value

    return change


def said_valid(file):
    """The case that failed, and all cases together."""
    for path in ("summary/verdict", "cases/0002/verdict"):
        file[path][...] = "VALID"
    file["summary"].attrs["verdict"] = "VALID"


def all_said_valid(file):
    file["summary"].attrs["verdict"] = "VALID"


def without_doubt(file):
    """Both valid cases are noisy."""
    file["summary"].attrs["verdict"] = "INVALID: 1 of 3 cases"
    merit = f"{file['summary/tokens_per_s'][:2].max():.6g} tokens/s (tawpipe, 3 ranks)"
    file["summary"].attrs["figures_of_merit"] = [merit]


def better_merit(file):
    file["summary"].attrs["figures_of_merit"] = ["9e9 tokens/s (tawpipe)"]


def faster(file):
    """In the summary, while the steps stay."""
    for name in ("median_s", "q1_s", "q3_s"):
        file[f"summary/{name}"][...] = file[f"summary/{name}"][()] / 2


def other_bytes(file):
    file["cases/0000/bytes/counted"][0, 1, 0] += 1


def attribute(path, name, value, **options):
    def change(file):
        file[path].attrs.create(name, value, **options)

    return change


def one_text_for_all(file):
    """Every line of a log names the same long text, 400 GB in all."""
    lines = replaced(file, "provenance/log", shape=(100000,), dtype=text_type())
    lines[:] = ""
    lines[0] = "x" * 4_000_000


def names_of_one(image):
    """The places of all texts of /provenance/log become that of the first one."""
    with h5py.File(h5py.h5f.open_file_image(image)) as file:
        dataset = file["provenance/log"]
        at, count = dataset.id.get_offset(), len(dataset)
    return image[:at] + image[at : at + 16] * count + image[at + 16 * count :]


def flipped(seed, most):
    def change(image):
        numbers, changed = random.Random(seed), bytearray(image)
        for _ in range(numbers.randrange(1, most)):
            changed[numbers.randrange(len(changed))] = numbers.randrange(256)
        return bytes(changed)

    return change


def event(name, value):
    def change(file):
        file[f"cases/0000/timeline/{name}"][1] = value

    return change


def prepared(first, then):
    """A change by h5py, then one of the bytes."""

    def change(image):
        memory = h5py.h5f.open_file_image(image, h5py.h5f.FILE_IMAGE_OPEN_RW)
        with h5py.File(memory) as file:
            first(file)
            file.flush()
            image = memory.get_file_image()
        return then(image)

    return change


SPECIAL = [
    Damage("groups in a cycle", cycle),
    Damage("200 groups in one another", deep),
    Damage("2000 groups nobody knows", many_groups, False),
    Damage("a named type", named_type),
    Damage("no /cases/0001", no_case),
    Damage("no settings of a case", no_settings),
    Damage("case 7 of 3", hole_in_cases),
    Damage("one case more than rows", case_more),
    Damage("session 9 of 2", hole_in_sessions),
    Damage("cases of session 99", other_session),
    Damage("2^40 ranks", many_ranks),
    Damage("groups of 2^40", other_groups(str(2**40))),
    Damage("groups that are none", other_groups("1+x")),
    Damage("groups of a huge number", other_groups("1+" + "9" * 5000)),
    Damage("no replica", in_summary_and_cases("replicas", 0)),
    Damage("no token in a sequence", in_summary_and_cases("seq", 0)),
    Damage("2^62 tokens in a sequence", in_summary_and_cases("seq", 2**62), False),
    Damage("2^62 repetitions asked for", in_summary_and_cases("repeats", 2**62)),
    Damage("a failed case said to be valid", said_valid),
    Damage("all said to be valid", all_said_valid, "scripts"),
    Damage("a better figure of merit", better_merit, "scripts"),
    Damage("a figure of merit without its doubt", without_doubt, "scripts"),
    Damage("a faster median", faster),
    Damage("a byte more than planned", other_bytes),
    Damage("a verdict that is a number", attribute("summary", "verdict", 7), "scripts"),
    Damage("a verdict of many", attribute("summary", "verdict", ["VALID"] * 9), "scripts"),
    Damage(
        "figures of merit that are numbers",
        attribute("summary", "figures_of_merit", [1, 2]),
        "scripts",
    ),
    Damage(
        "1000 figures of merit",
        attribute("summary", "figures_of_merit", ["none"] * 1000),
        "scripts",
    ),
    Damage(
        "a figure of merit as a reference",
        lambda file: attribute(
            "summary", "figures_of_merit", file["cases"].ref, dtype=h5py.ref_dtype
        )(file),
        "scripts",
    ),
    Damage(
        "codes of kinds that are numbers",
        attribute("cases/0000/timeline/kind", "codes", [1, 2, 3]),
        False,
    ),
    Damage("fewer codes than kinds", attribute("cases/0000/timeline/kind", "codes", ["F"]), False),
    Damage("an event of rank 99", event("rank", 99), False),
    Damage("an event that ends at NaN", event("end", numpy.nan), False),
    Damage("an event at 1e300", event("end", 1e300), False),
    Damage("an event of lane 2^31 - 1", event("lane", 2**31 - 1), False),
    Damage(
        "100 000 lines that are one text of 4 MB",
        None,
        "scripts",
        on_bytes=prepared(one_text_for_all, names_of_one),
    ),
    Damage("no bytes", None, on_bytes=lambda image: b""),
    Damage("no HDF5", None, on_bytes=lambda image: b"hello\n"),
    Damage("half of HDF5", None, on_bytes=lambda image: image[: len(image) // 2]),
]


def damages(sample, seed, count):
    """The special ones, and a random choice of all others."""
    numbers = random.Random(seed)
    with files.read(sample) as file:
        paths = paths_of(file)
    every = [
        (path, entry, name)
        for path, entry in paths
        for name, (_, fits, _) in CHANGES.items()
        if fits(entry)
    ]
    chosen = list(SPECIAL)
    flips = max(5, count // 10)
    for path, entry, name in numbers.sample(every, max(0, count - len(SPECIAL) - flips)):
        change, _, refused = CHANGES[name]
        may_lack = path.startswith("cases/0002/") and name in (
            "has one row more",
            "is empty",
        )  # the case that failed
        chosen.append(
            Damage(
                f"/{path} {name}",
                lambda file, do=change, path=path, entry=entry: do(file, path, entry),
                refused(entry) and not may_lack,
            )
        )
    for number in range(flips):
        chosen.append(
            Damage(f"bytes changed by chance, {number}", None, False, flipped(numbers.random(), 40))
        )
    return chosen


# Other input of the commands: archives, predictions, samples of meters.


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
    settings = "schedule=fsdp ranks=4 groups=2+2 seq=256 hidden=64"
    case = {
        "settings": settings,
        "fits": True,
        "step_s": 1.5,
        "tokens_per_s": 100.0,
        "memory_bytes": 1000,
        "adapters": [{"out_bytes": 5}],
    }
    found = {
        "none": '{"cases": []}',
        "deep": "[" * 200000,
        "no ranks": json.dumps(
            {"cases": [case | {"settings": settings.replace("ranks=4", "ranks=0")}]}
        ),
        "a list": "[]",
        "no JSON": "x",
        "digits of others": json.dumps(
            {"cases": [case | {"settings": settings.replace("256", "\u00b2")}]}
        ),
        "many digits": json.dumps(
            {"cases": [case | {"settings": settings.replace("256", "9" * 5000)}]}
        ),
    }
    for value in STRANGE:
        for name in case:
            found[f"{name} {value}"] = json.dumps({"cases": [case | {name: value}]})
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
