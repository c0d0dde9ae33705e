# SPDX-License-Identifier: BSD-3-Clause
"""Files that break one rule each (docs/results.md): every command in scripts/ and minitaw show
refuse them in one sentence that names the file. And predictions and timelines that nobody would
write. Called with the repository, the sample, a folder and the program."""

import json
import pathlib
import sys

PROGRAM = pathlib.Path(sys.argv[4]).resolve()  # before the folder changes

import files
import h5py
import numpy
from support import FOLDER, SAMPLE, accepted, call, programs, run_checks
from minitaw import sealed

WHOLE, IMAGE = SAMPLE.read_bytes(), files.image_of(SAMPLE)
COLUMN = "runs/median_s"
CONTROLS = "\x1b]0;owned\x07\x1b[2J\ufffe"
COMMANDS = {
    "report": ["f.h5", "-o", "out.html"],
    "compare": ["f.h5", SAMPLE],
    "compare ": [SAMPLE, "f.h5"],
    "trend": ["f.h5"],
    "timeline": ["f.h5", "--case", "0", "-o", "out.svg"],
    "check-rules": ["f.h5", "--archive", "out.tar.gz"],
    "plot": ["f.h5", "-o", "out.csv"],
}


def changed(change):
    """Sealed, after a change of the HDF5 file."""
    path = FOLDER / "changed.h5"
    path.write_bytes(IMAGE)
    with h5py.File(path, "r+") as file:
        change(file)
    return pathlib.Path(files.sealed_file(path, path.read_bytes())).read_bytes()


def instead(**options):
    """Of a column; `options` are those of h5py's create_dataset."""

    def change(file):
        attributes = dict(file[COLUMN].attrs)
        del file[COLUMN]
        file.create_dataset(COLUMN, **{"dtype": float, "shape": (7,)} | options)
        file[COLUMN].attrs.update(attributes)

    return changed(change)


def removed(file):
    del file[COLUMN]


def linked(link):
    def change(file):
        removed(file)
        file[COLUMN] = link

    return changed(change)


def virtual(file):
    removed(file)
    layout = h5py.VirtualLayout(shape=(7,), dtype=float)
    layout[...] = h5py.VirtualSource("other.h5", "x", shape=(7,))
    file.create_virtual_dataset(COLUMN, layout)


def deep(file):
    file.create_group("/".join("x" * 200))


def cycle(file):
    file["runs/0000/again"] = file["runs"]


def resealed(image, schema=sealed.SCHEMA):
    return sealed.seal_of(schema, [image]) + image


REFUSED = {  # what is said: of which files
    "f.h5 is damaged": [
        WHOLE[:-1],
        WHOLE + b"\0",
        WHOLE[: sealed.SEAL_BYTES],
        WHOLE[:-1000] + bytes([WHOLE[-1000] ^ 4]) + WHOLE[-999:],
        resealed(b"hello\n"),
        resealed(IMAGE[: len(IMAGE) // 2]),
        changed(removed),
        instead(data=numpy.ones(8), shape=None),
        instead(data=[b"x" * 9] * 7, shape=None, dtype="S9"),  # texts instead of numbers
    ],
    "f.h5 is not a miniTaw result": [b"hello\n", b"", IMAGE],
    "f.h5 has schema version 4": [resealed(IMAGE, 4), b"miniTaw result, schema 4 and no more"],
    f"/{COLUMN} is a link": [
        linked(h5py.ExternalLink("other.h5", "/x")),
        linked(h5py.SoftLink("/runs/q1_s")),
    ],
    f"/{COLUMN} has its values in": [
        instead(external=[("other.h5", 0, 56)]),
        changed(virtual),
    ],
    f"/{COLUMN} is compressed": [instead(data=numpy.ones(7), chunks=True, compression="gzip")],
    f"/{COLUMN} claims": [instead(shape=(2**31,), chunks=(1024,))],
    "lies deeper": [changed(deep)],
    "is linked from several places": [changed(cycle)],
}
SCRIPTS_ONLY = {"lies deeper", "is linked from several places"}  # minitaw reads nothing there


def answers():
    """(command, what it says) of f.h5."""
    for name, arguments in COMMANDS.items():
        yield name, call(name.strip(), *arguments)
    yield "minitaw", programs.call(PROGRAM, "show", "f.h5")


def check_files():
    with h5py.File("other.h5", "w") as other:
        other["x"] = numpy.ones(7)
    for said, contents in REFUSED.items():
        for number, content in enumerate(contents):
            pathlib.Path("f.h5").write_bytes(content)
            for name, done in answers():
                if name == "minitaw" and said in SCRIPTS_ONLY:
                    assert done.returncode in (0, 1, 2), (said, done)
                else:
                    assert said in done.stderr, (said, number, done)
                    programs.refused(done, "f.h5", name=name.strip())
    assert not list(FOLDER.glob("out.*"))


def check_names():
    """What is no file, and what none can read."""
    for path in (FOLDER, "/dev/zero", "missing.h5"):
        for name, arguments in COMMANDS.items():
            done = call(name.strip(), *(path if word == "f.h5" else word for word in arguments))
            programs.refused(done, path, name=name.strip())
        programs.refused(programs.call(PROGRAM, "show", path), path)


def check_large():
    """What begins as no result is refused before the rest, here more than memory holds, is read."""
    with open("f.h5", "wb") as file:
        file.truncate(1 << 40)
    for name, done in answers():
        if name != "check-rules":  # it may be an archive
            assert "f.h5 is not a miniTaw result" in done.stderr, (name, done)
        programs.refused(done, "f.h5", name=name.strip())
    pathlib.Path("f.h5").unlink()


def check_controls():
    """Control characters could command a terminal: they are replaced."""

    def change(file):
        file["runs/schedule"][...] = CONTROLS
        file["sessions/0000/compiler"][()] = CONTROLS
        file["runs"].attrs["slowest"] = CONTROLS

    pathlib.Path("f.h5").write_bytes(changed(change))
    for name, done in answers():
        assert done.returncode in (0, 1, 2) and done.stderr.count("\n") <= 1, (name, done)
        assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr), (name, done)
    assert not {"\x1b", "\x07", "\ufffe"} & set(pathlib.Path("out.html").read_text())


# JSON of minitaw predict.

STRANGE = [None, "x", [], {}, -2, 2**70, 1e308, True, [1], 0.5]
EVENTS = dict.fromkeys(
    "rank lane kind segment payload shard micro_batch link begin end".split(), [0, 1]
)
CODES = {
    "lane": ["compute", "x"],
    "kind": ["F", "W"],
    "segment": ["all", "keys"],
    "payload": ["weights", "x"],
}
STEP = {"title": "t", "groups": [1, 1], "codes": CODES, "events": EVENTS}
SETTINGS = {"schedule": "fsdp", "ranks": 4, "groups": "2+2", "seq": 256}
FIGURES = dict.fromkeys(("step_s", "tokens_per_s", "memory_bytes", "bytes_between"), 5)
CASE = FIGURES | {"settings": SETTINGS, "fits": True}


def strange(parts):
    """Copies in which one part is strange."""
    for name in parts:
        yield from (parts | {name: value} for value in STRANGE)


def check_json():
    """They may have a sense, and give no traceback: nothing else than a sentence or a result."""
    steps = [*strange(STEP), *(STEP | {"events": events} for events in strange(EVENTS))]
    cases = [*strange(CASE), *(CASE | {"settings": found} for found in strange(SETTINGS))]
    texts = ["{}", "[]", "null", "[" * 200000, "\x00"]
    for name, output, key, good, others in (
        ("timeline", "out.svg", "timelines", STEP, steps),
        ("plot", "out.csv", "cases", CASE, cases),
    ):
        contents = [json.dumps({key: [one], "between_bytes_per_s": 1e9}) for one in (good, *others)]
        codes = []
        for content in contents + texts:
            pathlib.Path("x.json").write_text(content, encoding="utf-8")
            done = call(name, "x.json", "-o", output)
            codes.append(done.returncode)
            said = done.returncode == 2 and done.stderr.count("\n") == 1
            assert said or done.returncode == 0, (name, content[:500], done)
        assert codes[0] == 0 and codes.count(0) < len(codes) / 2, (name, codes)


for left in FOLDER.iterdir():
    left.unlink()
run_checks(globals())
accepted("compare", SAMPLE, SAMPLE, "--threshold", "off")
