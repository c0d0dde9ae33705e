"""scripts/minitaw/record.py opens sound result files, and refuses all others in one sentence."""

import random

import h5py
from support import FOLDER, SAMPLE
from minitaw import command
from minitaw import record as subject

HERE, CONTENT = FOLDER, SAMPLE.read_bytes()
IMAGE = CONTENT[subject.SEAL_BYTES:]


def opens(content, name="copy.h5"):
    (HERE / name).write_bytes(content)
    with subject.open_result(HERE / name) as file:
        return list(file["summary/schedule"].asstr()[:])


def refusal(content):
    try:
        opens(content)
    except command.BadInput as error:
        return str(error)
    raise AssertionError("a damaged file was opened")


def refused(content, *says):
    sentence = refusal(content)
    for words in (str(HERE / "copy.h5"), *says):
        assert words in sentence and "\n" not in sentence, f"{sentence!r} does not say {words!r}"


def with_schema(schema):
    """The image with another number in its attribute `schema`."""
    (HERE / "edited.h5").write_bytes(IMAGE)
    with h5py.File(HERE / "edited.h5", "r+") as file:
        file.attrs["schema"] = schema
    return (HERE / "edited.h5").read_bytes()


def check_seals():
    sealed = subject.seal_of(4, with_schema(4)) + with_schema(4)
    assert len(opens(sealed)) == 7
    refused(sealed[:-1], "truncated", f"{len(sealed) - 1} of {len(sealed)} bytes")
    refused(sealed + b"\0", "longer")
    refused(sealed[:600], "truncated")
    refused(sealed[:100], "seal")
    refused(sealed[:511] + b" " + sealed[512:], "seal")
    refused(b"M" + sealed[1:], "lost its seal")
    refused(subject.seal_of(5, sealed[512:]) + sealed[512:], "schema version 5")
    refused(subject.seal_of(3, sealed[512:]) + sealed[512:], "schema version 3")
    refused(subject.SEAL_WORDS + b"77 in a form of its own", "schema version 77")
    refused(subject.seal_of(4, with_schema(3)) + with_schema(3), "not a miniTaw result")
    refused(subject.seal_of(4, b""), "cannot open")
    numbers = random.Random(5)
    for _ in range(300):
        at = numbers.randrange(len(sealed))
        changed = bytearray(sealed)
        changed[at] ^= 1 << numbers.randrange(8)
        refused(bytes(changed))


def check_unsealed():
    refused(IMAGE, "lost its seal")
    refused(b"M" * 512 + IMAGE, "lost its seal")
    refused(b"hello\n", "not a miniTaw result")
    refused(b"", "not a miniTaw result")
    with h5py.File(HERE / "foreign.h5", "w") as file:
        file["x"] = [1, 2, 3]
    foreign = (HERE / "foreign.h5").read_bytes()
    refused(subject.seal_of(4, foreign) + foreign, "cannot open")


def check_columns():
    """The file says itself which columns there are, in which order, with which units, and which of them are settings."""
    result = subject.load(SAMPLE)
    assert list(result.units)[:3] == ["case", "session", "status"] and result.units["seq"] == "token"
    assert "schedule" in result.settings and "median_s" not in result.settings
    case = result.cases[4]
    assert case["median_s"] == 2.25 and list(case.samples) == [0.75, 1.75, 2.75, 3.75] and len(case.get("losses")) == 5
    assert case.valid and not result.cases[6].valid and case.session["deck"] == "layers = 5\n"


check_seals()
check_unsealed()
check_columns()
