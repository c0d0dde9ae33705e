# SPDX-License-Identifier: BSD-3-Clause
"""scripts/gpu-speed with stand-ins for the programs: the tables it makes of their results, and what
it does where a peer, a tool or time is missing. Called with the repository, a folder to write to
and the real program."""

from stand_ins import (
    FOLDER,
    PLAIN,
    bad_calls_are_refused,
    check,
    every_row_shows_a_failure,
    kept,
    machine,
    row,
)

PEER = """
import json, sys
value = lambda name: int(sys.argv[sys.argv.index(name) + 1])
recompute = "--no-recompute" not in sys.argv
found = {"hidden": value("--hidden"), "seq": value("--seq"), "recompute": recompute}
print(json.dumps(found, indent=1))"""


def peer(text=PEER):
    path = FOLDER / "peer.py"
    path.write_text(text, encoding="utf-8")
    return path


def steps_stand_beside_the_peer():
    """Both compute nothing twice where that fits, at the lengths that the plan says."""
    machine()
    table, log = check("gpu-speed", "--peer", peer(), code=0)
    for steps in (
        "4096 none 4K,16K",
        "4096 keep-attention 64K",
        "1024 none 4K,16K",
        "4096 keep-attention 128K",
    ):
        assert f"\n{steps}\n" in table, table
    assert '"hidden":4096,"seq":4096,"recompute":false' in table, table
    assert '"hidden":4096,"seq":65536,"recompute":true' in table, table
    assert "RESULT: VALID" in table
    assert len(kept("peer.jsonl").splitlines()) == 5
    assert "--set ffn=2816" in log
    assert kept("single-1024.h5")
    assert " ok " in row(table, "step, H = 4096, S = 64K, recompute keep-attention")
    assert " ok " in row(table, "step, H = 4096, S = 4K,16K, recompute none")


def without_a_peer_a_row_says_so():
    machine()
    table, _ = check("gpu-speed", code=0)
    assert "no --peer" in row(table, "peer"), table


def a_peer_that_fails_is_told_and_the_rest_goes_on():
    machine()
    for text in ("raise SystemExit('out of memory: error')", "print('error: out of memory')"):
        table, _ = check("gpu-speed", "--peer", peer(text), code=0)
        assert "FAILED" in row(table, "peer, H = 4096, S = 64K"), table
        assert "\n4096 keep-attention 64K\n" in table, table


def what_does_not_fit_to_the_end_is_a_failure():
    machine(
        minitaw=PLAIN["minitaw"].replace(
            '[ "${steps:-3}" -ge 3 ]', "case $seq in *64K*) false ;; esac"
        )
    )
    table, _ = check("gpu-speed", code=1)
    assert "RESULT: INVALID: 1 of 1" in row(table, "step, H = 4096, S = 64K")
    assert " ok " in row(table, "step, H = 4096, S = 4K,16K,")
    machine(
        minitaw=PLAIN["minitaw"].replace(
            "show)", "show) echo 'minitaw: that is no HDF5 file'; exit 2 ;; other)"
        )
    )
    table, _ = check("gpu-speed", code=1)
    assert "no HDF5 file" in row(table, "results of single-4096.h5")


for part in (
    steps_stand_beside_the_peer,
    without_a_peer_a_row_says_so,
    a_peer_that_fails_is_told_and_the_rest_goes_on,
    what_does_not_fit_to_the_end_is_a_failure,
):
    part()
bad_calls_are_refused("gpu-speed")
machine()
assert every_row_shows_a_failure("gpu-speed") == 16
