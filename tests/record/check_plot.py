"""scripts/plot.py draws a result file and says clearly when it cannot. Called with the script, a result file and a folder."""

import pathlib
import subprocess
import sys

SCRIPT, FILE, FOLDER = sys.argv[1:]


def call(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=120)


def check_pictures(option, prefix):
    for suffix in (".png", ".svg"):
        pathlib.Path(prefix + suffix).unlink(missing_ok=True)
    done = call(FILE, "-o", option)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.split() == [prefix + ".png", prefix + ".svg"], done.stdout
    assert pathlib.Path(prefix + ".png").read_bytes().startswith(b"\x89PNG")
    picture = pathlib.Path(prefix + ".svg").read_text(encoding="utf-8")
    for words in ("sequence length [token]", "throughput, all ranks [token/s]", "memory of the worst rank [KiB]",
                  "tawpipe, groups 1+2", "ddp, groups 1+2", "3 ranks", "1 of 7 cases not valid",
                  "step at 512 tokens, mean over ranks [ms]", "computing", "waiting for weights", "for gradients",
                  "for activations", "for embedding and head", "idle"):
        assert f"<!-- {words}" in picture or words in picture, f"the picture does not say {words!r}"


def check_refusal(*arguments, says):
    done = call(*arguments)
    assert done.returncode == 2 and done.stderr.startswith("plot.py: ") and done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr, done.stderr


check_pictures(FOLDER + "/plot", FOLDER + "/plot")
check_pictures(FOLDER, FOLDER + "/" + pathlib.Path(FILE).stem)
check_refusal(FOLDER + "/missing.h5", says="no such file")
check_refusal(SCRIPT, says="not a miniTaw result")
check_refusal(FILE, "-o", FOLDER + "/missing/plot", says="no folder")
