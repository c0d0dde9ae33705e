"""scripts/plot draws a result file and says clearly when it cannot."""

import pathlib
from support import FOLDER, REPOSITORY, SAMPLE, accepted, refused


def check_pictures(option, prefix):
    for suffix in (".png", ".svg"):
        pathlib.Path(f"{prefix}{suffix}").unlink(missing_ok=True)
    assert accepted("plot", SAMPLE, "-o", option).split() == [f"{prefix}.png", f"{prefix}.svg"]
    assert pathlib.Path(f"{prefix}.png").read_bytes().startswith(b"\x89PNG")
    picture = pathlib.Path(f"{prefix}.svg").read_text(encoding="utf-8")
    for words in ("bytes sent between groups at 512 tokens, exact [B/step]", "sequence length [token]", "throughput [token/s], whiskers: quartiles",
                  "memory of the worst rank [KiB]", "tawpipe", "ddp", "3 ranks, groups 1+2", "1 of 7 cases not valid", "step at 512 tokens, mean over ranks [s/step]",
                  "computing", "waiting for weights", "for gradients", "for activations", "for embedding and head", "idle", "planned"):
        assert f"<!-- {words}" in picture or words in picture, f"the picture does not say {words!r}"


check_pictures(FOLDER / "plot", FOLDER / "plot")
check_pictures(FOLDER, FOLDER / SAMPLE.stem)
refused("plot", FOLDER / "missing.h5", says="No such file")
refused("plot", REPOSITORY / "README.md", says="not a miniTaw result")
refused("plot", SAMPLE, "-o", FOLDER / "missing/plot", says="no folder")
