# SPDX-License-Identifier: BSD-3-Clause
"""Result files that are broken, in one way each, or strange: they are refused in one sentence that
names the file, by minitaw show too (docs/results.md)."""

import io
import pathlib

import h5py
import numpy
import pytest
from minitaw import record, sealed
from programs import (
    REPOSITORY,
    SAMPLE,
    call,
    minitaw,
    refusal_of,
    refused,
    refuses,
    says,
    script,
    told,
)
from samples import made, resealed

WHOLE = SAMPLE.read_bytes()
IMAGE = WHOLE[sealed.SEAL_BYTES :]
COLUMN = "runs/median_s"


def changed(change):
    """Sealed, after a change of the HDF5 file."""
    image = io.BytesIO(IMAGE)
    with h5py.File(image, "r+") as file:
        change(file)
    return resealed(image.getvalue())


def without(file):
    """The attributes of a column that is no more."""
    attributes = dict(file[COLUMN].attrs)
    del file[COLUMN]
    return attributes


def instead(**options):
    """Of a column; `options` are those of h5py's create_dataset."""

    def change(file):
        attributes = without(file)
        usual = dict(dtype=float, shape=(7,))
        file.create_dataset(COLUMN, **usual | options).attrs.update(attributes)

    return changed(change)


def linked(file):
    without(file)
    file[COLUMN] = h5py.ExternalLink("other.h5", "/x")


def virtual(file):
    without(file)
    layout = h5py.VirtualLayout(shape=(7,), dtype=float)
    layout[...] = h5py.VirtualSource("other.h5", "x", shape=(7,))
    file.create_virtual_dataset(COLUMN, layout)


def deep(file):
    file.create_group("/".join("x" * 200))


def cycle(file):
    file["runs/0000/again"] = file["runs"]


BROKEN = {
    "a bit": (WHOLE[:-1000] + bytes([WHOLE[-1000] ^ 4]) + WHOLE[-999:], "changed after"),
    "not HDF5": (resealed(b"hello\n"), "damaged"),
    "a column less": (changed(without), "damaged"),
    "a longer column": (instead(data=numpy.ones(8), shape=None), "damaged"),
    "texts": (instead(data=[b"x"] * 7, shape=None, dtype="S9"), "damaged"),
    "no seal": (IMAGE, "f.h5 is not a miniTaw result"),
    "old": (resealed(IMAGE, 4), "schema version 4"),
    "link": (changed(linked), f"/{COLUMN} is a link"),
    "elsewhere": (instead(external=[("other.h5", 0, 56)]), f"/{COLUMN} has its values in"),
    "virtual": (changed(virtual), f"/{COLUMN} has its values in"),
    "packed": (instead(data=numpy.ones(7), chunks=True, compression="gzip"), "compressed"),
    "too large": (instead(shape=(2**31,), chunks=(1024,)), f"/{COLUMN} claims"),
    "deep": (changed(deep), "lies deeper"),
    "cycle": (changed(cycle), "is linked from several places"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused(what):
    content, said = BROKEN[what]
    with h5py.File("other.h5", "w") as other:
        other["x"] = numpy.ones(7)
    pathlib.Path("f.h5").write_bytes(content)
    says(refusal_of(record.load, "f.h5"), "f.h5", said)
    if what not in ("deep", "cycle"):  # minitaw reads nothing there
        refused(minitaw("show", "f.h5"), "f.h5", said)


@pytest.mark.parametrize("path", [".", "/dev/zero", "missing.h5", "huge.h5"])
def test_what_is_no_file_is_refused(path):
    """What begins as no result is not read to its end: it is more than memory holds."""
    with open("huge.h5", "wb") as file:
        file.truncate(1 << 40)
    says(refusal_of(record.load, path), path, "is a device" if path == "/dev/zero" else "")
    refused(minitaw("show", path), path)


COMMANDS = """
report f.h5 -o out.html
compare f.h5 good.h5
compare good.h5 f.h5
trend f.h5
timeline f.h5 --case 0 -o out.svg
check-rules f.h5 --archive out.tar.gz
plot f.h5 -o out.csv
"""


def test_every_command_refuses_a_broken_file():
    """And writes nothing."""
    pathlib.Path("f.h5").write_bytes(WHOLE[:-1])
    pathlib.Path("good.h5").write_bytes(WHOLE)
    for line in COMMANDS.strip().split("\n"):
        name, words = line.split(" ", 1)
        refuses(name, f"{words}: f.h5 is damaged")
    assert not list(pathlib.Path().glob("out.*"))


NONE, NAN = numpy.zeros((0, 3)), numpy.nan
FIGURES = ("median_s", "q1_s", "q3_s", "spread", "tokens_per_s", "energy")
STRANGE = {
    "failed before a step": dict.fromkeys(FIGURES, NAN)
    | dict(status="error", verdict="INVALID: error", seconds=NONE, samples=0),
    "failed in no time": dict(
        status="error", verdict="INVALID: error", seconds=numpy.zeros((4, 3))
    ),
    "not valid and in no time": dict(verdict="INVALID: late", seconds=numpy.zeros((4, 3))),
    "valid without a step": dict(seconds=NONE, samples=0),
    "valid in no time": dict(seconds=numpy.zeros((4, 3))),
    "a step that is no number": dict(seconds=numpy.full((4, 3), NAN)),
    "medians of zero": dict.fromkeys(FIGURES, 0),
    "medians that are none": dict.fromkeys(FIGURES, NAN),
    "one rank that sends nothing": dict(ranks=1, groups="1", group_count=1, bytes_inside=0)
    | dict(bytes_between=0, exposed_share=0, overlap=NAN),
    "no ranks": dict(ranks=0, micro_batch=0, micro_batches=0, seq=0),
}
READERS = """
report f.h5 -o out.html
plot f.h5 -o out.svg
plot f.h5 --x schedule --where seq=128,0 -o out.svg
compare f.h5 f.h5
compare --ratings f.h5 f.h5
compare --ratings f.h5 --json
check-rules f.h5
trend f.h5 f.h5
timeline f.h5 --case 0 -o out.svg
"""


@pytest.mark.parametrize("line", READERS.strip().split("\n"))
@pytest.mark.parametrize("what", [*STRANGE, "no run"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_strange_figures_give_an_answer_or_a_sentence(what, line):
    runs = [STRANGE[what] | {"base": base} for base in (0, 4)] if what in STRANGE else []
    made("f.h5", *runs)
    done = script(*line.split())
    assert done.returncode in (0, 1, 2, 3), told(done)
    assert done.stderr.count("\n") == (done.returncode == 2), told(done)


def test_control_characters_are_replaced():
    """They could command a terminal."""

    def change(file):
        controls = "\x1b]0;owned\x07\ufffe"
        file["runs/schedule"][...] = controls
        file["sessions/0000/compiler"][()] = controls
        file["runs"].attrs["slowest"] = controls

    pathlib.Path("f.h5").write_bytes(changed(change))
    runs = record.load("f.h5")
    (session, *_), slowest = runs.file[0].sessions, runs.file[0].slowest
    said = {runs.schedule[3], session["compiler"], slowest}
    assert said == {"\ufffd]0;owned\ufffd\ufffd"}
    done = minitaw("show", "f.h5")
    assert "owned" in done.stdout
    assert not {"\x1b", "\x07"} & {*done.stdout, *done.stderr}


def piped(where):
    command = REPOSITORY / "scripts/check-rules"
    return call("bash", "-c", f"'{command}' '{SAMPLE}' {where}; exit ${{PIPESTATUS[0]}}")


def test_a_full_disk_is_told():
    refused(piped("> /dev/full"), "standard output", "No space left", name="check-rules")


def test_a_reader_that_has_seen_enough_ends_a_command_quietly():
    done = piped("| true")
    assert done.returncode in (0, 1)
    assert done.stderr == ""
