# SPDX-License-Identifier: BSD-3-Clause
"""scripts/mutate on a project of one header and one module: which defects its tests notice, that a second call goes on where the first one
stopped, and that the project stays as it is. Called with the repository and a folder to write to."""

import os
import pathlib
import shutil
import subprocess
import sys

REPOSITORY, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
TREE = FOLDER / "tree"
FILES = {
    ".gitignore": "/build/\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(tiny CXX)\nenable_testing()\nadd_executable(check check.cpp)\n"
                      "add_test(NAME judge COMMAND check)\nadd_test(NAME words COMMAND python3 ${PROJECT_SOURCE_DIR}/check.py)\n",
    "CMakePresets.json": '{"version": 6, "configurePresets": [{"name": "host", "generator": "Ninja", "binaryDir": "${sourceDir}/build/host"}]}',
    "judge.hpp": """// never a < b
inline bool within(double error, double limit) { return error <= limit; }
inline int rounds(int n) {
  int count = 0;
  while (count < n) ++count;
  return count + 0;
}
""",
    "check.cpp": '#include "judge.hpp"\nint main() { return within(1, 2) && !within(3, 2) && rounds(3) == 3 ? 0 : 1; }\n',
    "words.py": 'def longer(a, b):\n    """a > b"""\n    return len(a) > len(b)\n',
    "check.py": "from words import longer\nassert longer('aa', 'b') and not longer('a', 'bb')\n",
}
WRITTEN = [("judge.hpp", "^judge$", "error <= limit", "error >= limit", "killed", "judge"),
           ("judge.hpp", "^judge$", "error <= limit", "error < limit", "survived", ""),
           ("judge.hpp", "^judge$", "error <= limit", "error <= limits", "no program", ""),
           ("judge.hpp", "^judge$", "count + 0", "count - 0", "same program", ""),
           ("judge.hpp", "^judge$", "++count", "count = 0", "killed", "time limit"),
           ("words.py", "^words$", "> len", "< len", "killed", "words"),
           ("words.py", "^words$", "> len", ">= len", "survived", ""),
           ("words.py", "^words$", "> len", "> > len", "no program", "")]

def mutate(*arguments, code):
    done = subprocess.run([TREE / "scripts/mutate", "--patience", "1", *arguments], capture_output=True, text=True, timeout=100, cwd=FOLDER,
                          env=os.environ | {"MINITAW_ENV": "host"})
    assert done.returncode == code, f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr

def ends():
    """What became of each text that was put in."""
    rows = [row.split("\t") for row in (TREE / "build/mutate.tsv").read_text(encoding="utf-8").splitlines()]
    return {row[2]: row[3:] for row in rows}

def listed(*rows):
    (TREE / "tests/mutations.txt").write_text("# file\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")

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
    assert "| judge.hpp | 3 | 2 | 1 |" in said and "| words.py | 2 | 1 | 1 |" in said and "| all | 5 | 3 | 2 |" in said, said
    assert "judge.hpp:2\n  - inline" in said and "2 survivors are not argued" in said, said

def the_project_stays_as_it_is():
    assert all((TREE / name).read_text(encoding="utf-8") == text for name, text in FILES.items())
    for name, text in FILES.items():
        assert (TREE / "build/mutate" / name).read_text(encoding="utf-8") == text, f"{name} of the copy"

def a_second_call_judges_what_is_new():
    before = (TREE / "build/mutate.tsv").read_text(encoding="utf-8")
    mutate(code=1)
    assert (TREE / "build/mutate.tsv").read_text(encoding="utf-8") == before
    # What an interruption leaves in the copy is put right; a survivor meets the new test, or is argued.
    (TREE / "build/mutate/judge.hpp").write_text("broken", encoding="utf-8")
    (TREE / "build/mutate/left.cpp").touch()
    (TREE / "check.cpp").write_text(FILES["check.cpp"].replace("within(1, 2)", "within(2, 2)"), encoding="utf-8")
    (TREE / "tests/mutations.md").write_text("words.py\n  - return len(a) > len(b)\n  + return len(a) >= len(b)\n  nobody asks\n", encoding="utf-8")
    assert "0 survivors are not argued" in mutate("--again", code=0)
    assert ends()["inline bool within(double error, double limit) { return error < limit; }"] == ["killed", "judge"]
    assert not (TREE / "build/mutate/left.cpp").exists()

def defects_are_generated():
    """Of code alone, the same for a seed, as many as asked for."""
    listed(("{judge,judge}.hpp", "^judge$"), ("{words,check}.py", "^words$"))
    assert "check.py:" in mutate("--list", code=0)
    listed(("judge.hpp", "^judge$"), ("words.py", "^words$"))
    every = mutate("--list", "--count", "100", code=0).splitlines()
    for defect in ("return error < limit;", "return {};", "while (count < n) --count;", "return count - 0;", "return count + 1;", "int count = 1;",
                   "return len(a) >= len(b)", "return None"):
        assert any(defect in line.split("->")[1] for line in every), f"{defect}: {every}"
    assert not any("never" in line or '"""' in line for line in every), every
    some = mutate("--list", "--count", "2", code=0).splitlines()
    assert len(some) == 4 and set(some) < set(every) and some == mutate("--list", "--count", "2", code=0).splitlines(), some
    assert some != mutate("--list", "--count", "2", "--seed", "2", code=0).splitlines()
    assert len(mutate("--list", "--count", "2", "--only", "py$", code=0).splitlines()) == 2

def what_does_not_apply_is_refused():
    listed(("judge.hpp", "^judge$", "no such text", "x"))
    assert "'no such text' stands 0 times in judge.hpp" in mutate(code=2)
    listed(("words.py", "^words$", "> len", "< len"))
    (TREE / "check.py").write_text("assert False", encoding="utf-8")
    (TREE / "build/mutate.tsv").unlink()
    assert "without a defect, the tests ^words$ fail" in mutate(code=2)

for part in (project, every_end_is_told, the_project_stays_as_it_is, a_second_call_judges_what_is_new, defects_are_generated, what_does_not_apply_is_refused):
    part()
