"""minitaw bundle as sender and receiver meet it, read with Python's own tarfile and hashlib. Called with the program, a result
file that is not valid (record_sample) and a folder to write to."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

PROGRAM, SAMPLE, FOLDER = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)


def call(*arguments):
    return subprocess.run([PROGRAM, "bundle", *map(str, arguments)], capture_output=True, text=True, cwd=FOLDER, timeout=120)


def refused(*arguments, says):
    done = call(*arguments)
    assert done.returncode == 2, f"{arguments}: exit {done.returncode}, {done.stderr}"
    assert done.stderr.startswith("minitaw: ") and done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr, f"{arguments}: {done.stderr!r} does not say {says!r}"
    assert done.stdout == "", done.stdout


def content(archive):
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            assert member.isfile() and member.name.startswith("bundle/") and member.mode == 0o644, member
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", ""), member
        return {member.name.removeprefix("bundle/"): tar.extractfile(member).read() for member in tar.getmembers()}


def make():
    shutil.copy(SAMPLE, FOLDER / "r.h5")
    (FOLDER / "job.sh").write_text("srun minitaw\n", encoding="utf-8")
    done = call("r.h5", "--add", "job.sh")
    assert done.returncode == 0 and done.stderr == "", done
    assert "RESULT: INVALID" in done.stdout, done.stdout  # said, but no reason not to pack it
    digest = hashlib.sha256((FOLDER / "r.tar.gz").read_bytes()).hexdigest()
    assert done.stdout.startswith(f"{digest}  r.tar.gz\n"), done.stdout


def check_content():
    files = content(FOLDER / "r.tar.gz")
    assert files["record.h5"] == (FOLDER / "r.h5").read_bytes() and files["added/job.sh"] == b"srun minitaw\n"
    shown = subprocess.run([PROGRAM, "show", "r.h5"], capture_output=True, text=True, cwd=FOLDER, timeout=120).stdout
    assert files["summary.txt"].decode() == shown
    assert {"README.txt", "deck.toml", "log.txt", "environment.txt", "summary.csv"} < set(files)
    sums = {name: digest for digest, name in (line.split("  ") for line in files.pop("SHA256SUMS").decode().splitlines())}
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def check_reproducible():
    """Another day, another umask, another order, another place: the same bytes."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as other:
        shutil.copy(FOLDER / "job.sh", other)
        os.utime(pathlib.Path(other, "job.sh"), (10**9, 10**9))
        os.chmod(pathlib.Path(other, "job.sh"), 0o700)
        assert call("--add", pathlib.Path(other, "job.sh"), "-o", "again.tar.gz", "r.h5").returncode == 0
    assert (FOLDER / "again.tar.gz").read_bytes() == (FOLDER / "r.tar.gz").read_bytes()


def check_checking():
    done = call("--check", "r.tar.gz")
    assert done.returncode == 1 and "RESULT: INVALID" in done.stdout and done.stderr == "", done
    rules = subprocess.run([PROGRAM, "show", "r.h5", "--rules"], capture_output=True, text=True, cwd=FOLDER, timeout=120)
    assert rules.returncode == 1 and rules.stdout.startswith("official: no: "), rules
    assert done.stdout.endswith(rules.stdout) and rules.stdout in content(FOLDER / "r.tar.gz")["README.txt"].decode()
    with tempfile.TemporaryDirectory(dir=FOLDER) as other:  # unpacked and packed again by hand, as a receiver may
        with tarfile.open(FOLDER / "r.tar.gz") as tar:
            tar.extractall(other, filter="data")
        with tarfile.open(FOLDER / "by-hand.tgz", "w:gz") as tar:
            tar.add(pathlib.Path(other, "bundle"), "bundle")
        assert call("--check", "by-hand.tgz").returncode == 1
        pathlib.Path(other, "bundle", "summary.txt").write_text("RESULT: VALID\n", encoding="utf-8")
        with tarfile.open(FOLDER / "by-hand.tgz", "w:gz") as tar:
            tar.add(pathlib.Path(other, "bundle"), "bundle")
    refused("--check", "by-hand.tgz", says="summary.txt is not what SHA256SUMS says")


def check_refusals():
    archive = (FOLDER / "r.tar.gz").read_bytes()
    (FOLDER / "cut.tar.gz").write_bytes(archive[: len(archive) // 2])
    refused("--check", "cut.tar.gz", says="damaged")
    refused("--check", "r.h5", says="not a tar.gz")
    refused("--check", "missing.tar.gz", says="cannot be read")
    refused("--check", FOLDER, says="not a file")
    refused(says="name a result file")
    refused("r.h5", "--check", "r.tar.gz", says="name a result file")
    refused("--check", "r.tar.gz", "-o", "x.tar.gz", says="--check")
    refused("missing.h5", says="cannot be read")
    refused("job.sh", says="not a miniTaw result")
    refused("r.h5", "-o", "r.h5", says=".tar.gz")
    refused("r.h5", "-o", "missing/x.tar.gz", says="cannot be written")
    refused("r.h5", "-o", "/dev/full/x.tar.gz", says="cannot be written")
    refused("r.h5", "--add", "missing", says="cannot be read")
    refused("r.h5", "--add", "r.tar.gz", "-o", "r.tar.gz", says="one of the files that go into the bundle")
    refused("r.h5", "--add", "job.sh", "--add", "./job.sh", says="another added/job.sh")
    refused("r.h5", "--add", "..", says="--add")
    assert (FOLDER / "r.tar.gz").read_bytes() == archive, "a refusal changed the archive"
    assert not list(FOLDER.glob("*.part")), "a copy was left behind"


shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
make()
check_content()
check_reproducible()
check_checking()
check_refusals()
