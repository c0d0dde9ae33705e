# SPDX-License-Identifier: BSD-3-Clause
"""scripts/mutate on a project of one header and one module: which defects its tests notice, that a
second call goes on where the first one stopped, and that the project stays as it is. Called with
the repository and a folder to write to.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import programs

REPOSITORY, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
TREE = FOLDER / "tree"
sys.path.insert(0, str(REPOSITORY / "scripts/lib"))
import slips  # noqa: E402

FILES = {
    ".gitignore": "/build/\n",
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)
project(tiny CXX)
enable_testing()
add_executable(check check.cpp)
add_test(NAME judge COMMAND check)
add_test(NAME words COMMAND python3 ${PROJECT_SOURCE_DIR}/check.py)
""",
    "CMakePresets.json": """{"version": 6, "configurePresets": [
  {"name": "host", "generator": "Ninja", "binaryDir": "${sourceDir}/build/host"}]}
""",
    "judge.hpp": """// never a < b
inline bool within(double error, double limit) { return error <= limit; }
inline int rounds(int n) {
  int count = 0;
  while (count < n) ++count;
  return count + 0;
}
""",
    "check.cpp": """#include "judge.hpp"
int main() { return within(1, 2) && !within(3, 2) && rounds(3) == 3 ? 0 : 1; }
""",
    "words.py": 'def longer(a, b):\n    """a > b"""\n    return len(a) > len(b)\n',
    "check.py": "from words import longer\nassert longer('aa', 'b') and not longer('a', 'bb')\n",
}
WRITTEN = [
    ("judge.hpp", "^judge$", "error <= limit", "error >= limit", "killed", "judge"),
    ("judge.hpp", "^judge$", "error <= limit", "error < limit", "survived", ""),
    ("judge.hpp", "^judge$", "error <= limit", "error <= limits", "no program", ""),
    ("judge.hpp", "^judge$", "count + 0", "count - 0", "same program", ""),
    ("judge.hpp", "^judge$", "++count", "count = 0", "killed", "time limit"),
    ("words.py", "^words$", "> len", "< len", "killed", "words"),
    ("words.py", "^words$", "> len", ">= len", "survived", ""),
    ("words.py", "^words$", "> len", "> > len", "no program", ""),
]

SLIPS = [
    ("sign", "  if (a < b && c) {", "if (a <= b && c) {", "if (a < b || c) {"),
    ("sign", "  n += 2;", "n -= 2;"),
    (
        "sign",
        "  while (count < n) ++count;",
        "while (count <= n) ++count;",
        "while (count < n) --count;",
    ),
    (
        "word",
        "  return std::any_of(all, max);",
        "return std::all_of(all, max);",
        "return std::any_of(all, min);",
    ),
    ("word", "  found = any(cells)", "found = all(cells)"),
    ("number", "  n = 7 * x1", "n = 8 * x1"),
    ("number", "  const double t = 2.5;", "const double t = (1.1 * 2.5);"),
    ("index", "  sum = a[rank]", "sum = a[0]"),
    ("condition", "  if (!done) {", "if (done) {", "if (!(!done)) {"),
    ("condition", "  const int n = big ? 3 : 4;", "const int n = big ? 4 : 3;"),
    ("condition", "  if a:", "if not (a):"),
    ("result", "  return error < limit;", "return {};"),
    ("result", "  return len(a)", "return None"),
    ("statement", "  open(1);", "{}"),
    ("statement", '  name = "a = b"', "pass"),
    ("one", "  n = *std::ranges::max_element(plan.ranks, {}, total);", "n = plan.ranks.front();"),
    ("one", "  most = std::max(most, f(a, b));", "most = f(a, b);"),
    ("one", "  n = std::ranges::max(sizes);", "n = sizes.back();"),
    (
        "one",
        "  n = max(f(a) for a in b)",
        "n = [*(f(a) for a in b)][0]",
        "n = [*(f(a) for a in b)][-1]",
    ),
    (
        "one",
        "  n = a.max(axis=1) - b.mean() + c.sum(axis=0)",
        "n = a[:, 0] - b.mean() + c.sum(axis=0)",
        "n = a.max(axis=1) - b.flat[0] + c.sum(axis=0)",
        "n = a.max(axis=1) - b.mean() + c[0]",
    ),
    (
        "loop",
        "  for (int r = 0; r < n; ++r) {",
        "for (int r = 1; r < n; ++r) {",
        "for (int r = 0; r + 1 < n; ++r) {",
    ),
    (
        "loop",
        "  for (const Case& c : deck.cases()) {",
        "for (const Case& c : deck.cases() | std::views::drop(1)) {",
    ),
    (
        "loop",
        "  n = [f(c) for a, c in some.of(1) if a]",
        "n = [f(c) for a, c in [*some.of(1)][1:] if a]",
        "n = [f(c) for a, c in [*some.of(1)][:-1] if a]",
    ),
    (
        "loop",
        "  for a, b in zip(c, d[1:]):",
        "for a, b in [*zip(c, d[1:])][1:]:",
        "for a, b in [*zip(c, d[1:])][:-1]:",
    ),
    ("guard", "  if (f(a)) continue;", "if (false) continue;"),
    ("guard", "  if not a:", "if False:"),
    ("guard", "  n = [f(c) for c in some if g(c) > 0]", "n = [f(c) for c in some]"),
    ("exchange", "  n = judge(base, new[0], rules)", "n = judge(new[0], base, rules)"),
    (
        "unit",
        "  us = 1e-6 * f(8 * bytes) / 2**20",
        "us = f(8 * bytes) / 2**20",
        "us = 1e-6 * f(bytes) / 2**20",
        "us = 1e-6 * f(8 * bytes)",
    ),
    ("unit", "  n = 32 << 20;", "n = 32;"),
    ("tolerance", "  if (e <= t.limit()) {", "if (e <= 100 * t.limit()) {"),
    ("tolerance", "  const double slack = 1e-6;", "const double slack = 100 * 1e-6;"),
    ("division", "  n = a / static_cast<double>(ranks.size()) / b;", "n = a / b;"),
    ("sum", "  n += f(a)", "n = f(a)"),
]


def mutate(*arguments, code, tree=TREE):
    done = programs.call(
        tree / "scripts/mutate",
        "--patience",
        "1",
        *arguments,
        cwd=FOLDER,
        env=os.environ | {"MINITAW_ENV": "host"},
    )
    assert (
        done.returncode == code
    ), f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def ends():
    """What became of each text that was put in."""
    rows = [
        row.split("\t")
        for row in (TREE / "build/mutate.tsv").read_text(encoding="utf-8").splitlines()
    ]
    return {row[2]: row[3:] for row in rows}


def listed(*rows):
    (TREE / "tests/mutations.txt").write_text(
        "# file\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8"
    )


def project():
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(REPOSITORY / "scripts", TREE / "scripts")
    (TREE / "tests").mkdir()
    for name, text in FILES.items():
        (TREE / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", TREE], check=True)


def every_end_is_told():
    listed(WRITTEN[0][:4] + WRITTEN[1][2:4], *(row[:4] for row in WRITTEN[2:]))
    said = mutate(code=1)
    for file, _, old, new, end, who in WRITTEN:
        (line,) = [line for line in FILES[file].splitlines() if old in line]
        assert ends()[line.replace(old, new).strip()] == [end, who], f"{new}: {ends()}"
    assert "| judge.hpp | 3 | 2 | 1 |" in said, said
    assert "| words.py | 2 | 1 | 1 |" in said, said
    assert "| all | 5 | 3 | 2 |" in said, said
    assert "judge.hpp:2\n  - inline" in said and "2 survivors are not argued" in said, said


def the_project_stays_as_it_is():
    assert all((TREE / name).read_text(encoding="utf-8") == text for name, text in FILES.items())
    for name, text in FILES.items():
        assert (TREE / "build/mutate" / name).read_text(
            encoding="utf-8"
        ) == text, f"{name} of the copy"


def a_second_call_judges_what_is_new():
    before = (TREE / "build/mutate.tsv").read_text(encoding="utf-8")
    mutate(code=1)
    assert (TREE / "build/mutate.tsv").read_text(encoding="utf-8") == before
    # What an interruption leaves in the copy is put right; a survivor meets the new test, or is
    # argued.
    (TREE / "build/mutate/judge.hpp").write_text("broken", encoding="utf-8")
    (TREE / "build/mutate/left.cpp").touch()
    (TREE / "check.cpp").write_text(
        FILES["check.cpp"].replace("within(1, 2)", "within(2, 2)"), encoding="utf-8"
    )
    (TREE / "tests/mutations.md").write_text(
        "words.py\n  - return len(a) > len(b)\n  + return len(a) >= len(b)\n  never asked\n",
        encoding="utf-8",
    )
    assert "0 survivors are not argued" in mutate("--again", code=0)
    assert ends()["inline bool within(double error, double limit) { return error < limit; }"] == [
        "killed",
        "judge",
    ]
    assert not (TREE / "build/mutate/left.cpp").exists()


def generate(kind, line, python):
    (code,) = slips.code_of(line, python).splitlines()
    return {new.strip() for _, new in slips.slips_in(line, code, f"^{kind}$")}


def slips_are_those_of_their_kind():
    """All of a line, in C++ (the first lines) and in Python; what stands in strings and comments
    stays."""
    for kind, line, *expected in SLIPS:
        python = line[-1] not in ";{"
        assert generate(kind, line, python) == set(expected), (
            kind,
            line,
            generate(kind, line, python),
        )
    assert {kind for kind, *_ in SLIPS} == set(slips.KINDS)
    assert (
        generate(".*", "  // never a < b or 3", False)
        == generate(".*", "  # not a < b or 3", True)
        == set()
    )


def defects_are_generated():
    """The same for a seed, as many as asked for, of each kind in turn."""
    listed(("{judge,judge}.hpp", "^judge$"), ("{words,check}.py", "^words$"))
    assert "check.py:" in mutate("--list", code=0)
    listed(
        ("judge.hpp", "^judge$"), ("words.py", "^words$"), ("words.py", "^words$", "> len", "< len")
    )
    every = mutate("--list", "--count", "100", code=0).splitlines()
    assert not any("never" in line or '"""' in line for line in every), every
    some = mutate("--list", "--count", "2", code=0).splitlines()
    assert len(some) == 5 and set(some) < set(every), some
    assert some == mutate("--list", "--count", "2", code=0).splitlines()
    assert some != mutate("--list", "--count", "2", "--seed", "2", code=0).splitlines()
    assert len(mutate("--list", "--count", "2", "--only", "py$", code=0).splitlines()) == 3
    assert [
        line.split("->")[1].strip()
        for line in mutate("--list", "--kind", "result", "--only", "py$", code=0).splitlines()
    ] == ["return None"]
    loops = mutate(
        "--list", "--count", "1", "--kind", "^(loop|sign)$", "--only", "hpp$", code=0
    ).splitlines()
    assert len(loops) == 1, loops


def what_does_not_apply_is_refused():
    listed(("judge.hpp", "^judge$", "no such text", "x"))
    assert "'no such text' stands 0 times in judge.hpp" in mutate(code=2)
    listed(("words.py", "^words$", "> len", "< len"))
    (TREE / "check.py").write_text("assert False", encoding="utf-8")
    (TREE / "build/mutate.tsv").unlink()
    assert "without a defect, the tests ^words$ fail" in mutate(code=2)


def the_list_of_this_project_fits_its_sources():
    """A text that no file holds any more, or holds twice, ends with exit code 2."""
    said = mutate("--count", "0", "--list", code=0, tree=REPOSITORY)
    assert len(said.splitlines()) > 500, said


for part in (
    project,
    every_end_is_told,
    the_project_stays_as_it_is,
    a_second_call_judges_what_is_new,
    slips_are_those_of_their_kind,
    defects_are_generated,
    what_does_not_apply_is_refused,
    the_list_of_this_project_fits_its_sources,
):
    part()
