"""minitaw topo: numbers that can be, in a table and in JSON, for groups of any size. Called with mpiexec, its option for the number of
ranks, and the program."""

import json
import subprocess
import sys

MPIEXEC, NUMBER, PROGRAM = sys.argv[1:]
NAMES = {"latency_s", "alone_bytes_per_s", "shared_bytes_per_s", "both_bytes_per_s"}


def call(ranks, *options, code=0):
    command = [MPIEXEC, NUMBER, str(ranks), PROGRAM, "topo", "--seconds", "0.05", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"{options}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done


def measured(ranks, *options):
    said = json.loads(call(ranks, "--json", *options).stdout)
    assert said["ranks"] == ranks == sum(said["groups"]) and said["shaped_links"] == [] and said["adapters"] >= 1
    for rates in (said["inside"], said["between"]):
        assert rates is None or (set(rates) == NAMES and all(value > 0 for value in rates.values())), said
        # no message comes before it has been sent, nor faster than memory moves
        assert rates is None or (rates["latency_s"] > 1e-9 and max(rates.values()) < 1e13), said
    return said


def numbers_are_there_for_the_links_that_are():
    said = measured(4, "--groups", "2")
    assert said["groups"] == [2, 2] and said["inside"] and said["between"]
    said = measured(4, "--groups", "1+3")
    assert said["groups"] == [1, 3] and said["inside"] and said["between"]
    assert measured(2)["between"] is None and measured(2, "--groups", "2")["inside"] is None
    assert measured(1)["inside"] is None


def the_table_has_a_line_for_each_number():
    rows = [line for line in call(4, "--groups", "2").stdout.splitlines() if not line.startswith("#")]
    assert [row.split()[0] for row in rows] == ["inside"] * 4 + ["between"] * 4, rows
    assert all(float(row.split()[-2]) > 0 for row in rows)


def bad_options_are_refused():
    for options in (["--groups", "3"], ["--groups", "2+3"], ["--groups", "x"], ["--groups", "0"], ["--groups", "9999999999"], ["--seconds", "0"],
                    ["--bogus"], ["deck.toml"]):
        said = call(4, *options, code=2)
        assert not said.stdout and said.stderr.startswith("minitaw: ") and said.stderr.count("\n") == 1, f"{options}: {said}"


numbers_are_there_for_the_links_that_are()
the_table_has_a_line_for_each_number()
bad_options_are_refused()
