"""scripts/lib/minitaw_file.py opens sound result files, and refuses all others in one sentence with exit code 2. Called with its folder,
a result file and a folder to write to."""

import pathlib
import random
import subprocess
import sys

LIBRARY, FILE, FOLDER = sys.argv[1:]
sys.path.insert(0, LIBRARY)
sys.dont_write_bytecode = True
import minitaw_file as subject  # noqa: E402

HERE = pathlib.Path(FOLDER)
CONTENT = pathlib.Path(FILE).read_bytes()
SEALED = CONTENT.startswith(subject.SEAL_WORDS)
IMAGE = CONTENT[subject.SEAL_BYTES:] if SEALED else CONTENT


def opens(content, name="copy.h5"):
    (HERE / name).write_bytes(content)
    with subject.open_checked(str(HERE / name)) as file:
        return list(file["summary/schedule"].asstr()[:])


def refusal(content):
    try:
        opens(content)
    except subject.BadFile as error:
        return str(error)
    raise AssertionError("a damaged file was opened")


def refused(content, *says):
    sentence = refusal(content)
    for words in (str(HERE / "copy.h5"), *says):
        assert words in sentence and "\n" not in sentence, f"{sentence!r} does not say {words!r}"


def with_schema(schema):
    """The image with another number in its attribute `schema`."""
    import h5py

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
    refused(b"M" + sealed[1:], "seal")
    refused(subject.seal_of(5, sealed[512:]) + sealed[512:], "schema version 5", "newer")
    refused(subject.SEAL_WORDS + b"77 in a form of its own", "schema version 77", "newer")
    refused(subject.seal_of(4, with_schema(3)) + with_schema(3), "its seal says schema 4, its content 3")
    refused(subject.seal_of(4, b""), "cannot open")
    numbers = random.Random(5)
    for _ in range(300):
        at = numbers.randrange(len(sealed))
        changed = bytearray(sealed)
        changed[at] ^= 1 << numbers.randrange(8)
        refused(bytes(changed))


def check_unsealed():
    import h5py

    assert len(opens(with_schema(3))) == 7
    refused(with_schema(4), "lost its seal")
    refused(with_schema(5), "newer")
    refused(with_schema(0), "damaged")
    refused(b"hello\n", "not a miniTaw result")
    refused(b"", "not a miniTaw result")
    refused(with_schema(3)[:-1000], "damaged")
    with h5py.File(HERE / "foreign.h5", "w") as file:
        file["x"] = [1, 2, 3]
    refused((HERE / "foreign.h5").read_bytes(), "not a miniTaw result")
    for link in (h5py.SoftLink("/cases"), h5py.ExternalLink("foreign.h5", "x")):
        (HERE / "linked.h5").write_bytes(with_schema(3))
        with h5py.File(HERE / "linked.h5", "r+") as file:
            file["elsewhere"] = link
        refused((HERE / "linked.h5").read_bytes(), "damaged")


def check_exit():
    """What a script says and returns."""
    code = f"import sys; sys.argv = ['here/some.py']; sys.path.insert(0, {LIBRARY!r}); import minitaw_file; " + \
        f"minitaw_file.open_result({FOLDER + '/missing.h5'!r})"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == f"some.py: {FOLDER}/missing.h5 cannot be read: there is no such file\n", done
    for name in (FOLDER, "/dev/null"):
        try:
            subject.open_checked(name)
            raise AssertionError(name)
        except subject.BadFile as error:
            assert "is not a file" in str(error)


HERE.mkdir(parents=True, exist_ok=True)
check_seals()
check_unsealed()
check_exit()
