# SPDX-License-Identifier: BSD-3-Clause
"""Result files that somebody else may have made: damaged or hostile, most with a right seal, named
by what was done to a sound one.

damages(seed, count) gives the special ones and a random choice of all others: something done to one
of the datasets.
"""

import functools
import random
from dataclasses import dataclass
from collections.abc import Callable

import files
import h5py
import numpy
from hostile_datasets import CHANGES, TEXT, replaced
from minitaw import layout, seal


@dataclass
class Damage:
    name: str
    change: Callable  # of an open h5py.File
    # True: by everybody; "scripts": by those, which look at all parts; False: it may be used
    is_refused: object = True
    on_bytes: Callable = None  # of the HDF5 file instead
    on_file: Callable = lambda file: file  # of its bytes with the seal, afterwards


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
    target.write_bytes(damage.on_file(seal.seal_of(seal.SCHEMA, image) + image))


# Special ones.


def unchanged(file):
    pass


def of_next_schema(file):
    return file.replace(b"schema %d" % seal.SCHEMA, b"schema %d" % (seal.SCHEMA + 1), 1)


def cycle(file):
    file["cases/0001/again"] = file["cases"]


def deep(file):
    group = file
    for _ in range(200):
        group = group.create_group("x")


def many_groups(file):
    for number in range(2000):
        file.create_group(f"more/{number}")


def named_type(file):
    file["provenance/type"] = numpy.dtype([("a", int)])


def hole_in_cases(file):
    file.move("cases/0001", "cases/0007")


def case_more(file):
    file.copy("cases/0001", "cases/0003")


def no_case(file):
    del file["cases/0001"]


def hole_in_sessions(file):
    file.move("provenance/resumed/0001", "provenance/resumed/0009")


def other_session(file):
    file["summary/session"][...] = 99


def in_summary(**settings):
    def change(file):
        for name, value in settings.items():
            file[f"summary/{name}"][...] = value

    return change


def said_valid(file):
    """The case that failed, and all cases together."""
    file["summary/verdict"][...] = "VALID"
    file["summary"].attrs["verdict"] = "VALID"


def all_said_valid(file):
    file["summary"].attrs["verdict"] = "VALID"


def no_verdict(file):
    del file["summary"].attrs["verdict"]


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
    """Every variable names the same long text, 400 GB in all."""
    lines = replaced(file, "provenance/environment", shape=(100000,), dtype=TEXT)
    lines[:] = ""
    lines[0] = "x" * 4_000_000


def names_of_one(image):
    """The places of all texts of /provenance/environment become that of the first one."""
    with h5py.File(h5py.h5f.open_file_image(image)) as file:
        dataset = file["provenance/environment"]
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
    Damage("groups in a cycle", cycle, "scripts"),
    Damage("200 groups in one another", deep, "scripts"),
    Damage("2000 unknown groups", many_groups, False),
    Damage("a named type", named_type, "scripts"),
    Damage("no /cases/0001", no_case, "scripts"),
    Damage("case 7 of 3", hole_in_cases, "scripts"),
    Damage("one case more than rows", case_more, "scripts"),
    Damage("session 9 of 2", hole_in_sessions, "scripts"),
    Damage("cases of session 99", other_session, "scripts"),
    Damage("2^40 ranks", in_summary(ranks=2**40, groups=str(2**40)), "scripts"),
    Damage("groups of 2^40", in_summary(groups=str(2**40)), "scripts"),
    Damage("groups that are none", in_summary(groups="1+x"), "scripts"),
    Damage("groups of a huge number", in_summary(groups="1+" + "9" * 5000), "scripts"),
    Damage("no replica", in_summary(replicas=0), "scripts"),
    Damage("no token in a sequence", in_summary(seq=0), "scripts"),
    Damage("2^62 tokens in a sequence", in_summary(seq=2**62), False),
    Damage("2^62 repetitions asked for", in_summary(repeats=2**62), "scripts"),
    Damage("a failed case said to be valid", said_valid, "scripts"),
    Damage("all said to be valid", all_said_valid, "scripts"),
    Damage("a faster median", faster, "scripts"),
    Damage("a byte more than planned", other_bytes, "scripts"),
    Damage("a verdict that is a number", attribute("summary", "verdict", 7), "scripts"),
    Damage("a verdict of many", attribute("summary", "verdict", ["VALID"] * 9), "scripts"),
    Damage("no verdict", no_verdict, "scripts"),
    Damage("1000 sentences", attribute("summary", "slowest", ["x"] * 1000), "scripts"),
    Damage(
        "a verdict as a reference",
        lambda file: attribute("summary", "verdict", file["cases"].ref, dtype=h5py.ref_dtype)(file),
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
    Damage("no result", unchanged, on_file=lambda file: b"hello\n"),
    Damage("no seal", unchanged, on_file=lambda file: file[seal.SEAL_BYTES :]),
    Damage("nothing but a seal", unchanged, on_file=lambda file: file[: seal.SEAL_BYTES]),
    Damage("a byte less than sealed", unchanged, on_file=lambda file: file[:-1]),
    Damage("a bit changed", unchanged, on_file=lambda file: file[:-1] + bytes([file[-1] ^ 1])),
    Damage("the next schema", unchanged, on_file=of_next_schema),
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
        for name, change in CHANGES.items()
        if change.fits(entry)
    ]
    flips = max(5, count // 10)
    chosen = list(SPECIAL)
    for path, entry, name in numbers.sample(every, max(0, count - len(SPECIAL) - flips)):
        change = CHANGES[name]
        # the case that failed
        may_lack = path.startswith("cases/0002/") and name in ("has one row more", "is empty")
        chosen.append(
            Damage(
                f"/{path} {name}",
                functools.partial(change.do, path=path, entry=entry),
                change.is_refused(entry) and not may_lack and change.refused_by(path),
            )
        )
    for number in range(flips):
        chosen.append(
            Damage(f"bytes changed by chance, {number}", None, False, flipped(numbers.random(), 40))
        )
    return chosen
