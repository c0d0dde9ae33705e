# SPDX-License-Identifier: BSD-3-Clause
"""scripts/count on texts whose figures are known by hand. Called with the repository and a folder
to write to."""

import json
import pathlib
import re
import shutil
import sys

import programs

REPOSITORY, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
sys.path.insert(0, str(REPOSITORY / "scripts/lib"))
import count  # noqa: E402

# 2 words and 2 signs; the words in a string and a raw string count, also where they look like
# comments.
CPP = """// words of a comment
/* and of
   another */ #define
const char* a = "/* b */"; // c
auto d = R"(e // f)";
int g = 1'000;
"""
CPP_TOKENS = [
    *["#", "define"],
    *["const", "char", "*", "a", "=", '"', "/", "*", "b", "*", "/", '"', ";"],
    *["auto", "d", "=", "R", '"', "(", "e", "/", "/", "f", ")", '"', ";"],
    *["int", "g", "=", "1", "'", "000", ";"],
]

PYTHON = '''"""A doc string."""


def a(b):
    """Another,
    of two lines."""
    return "# c"  # d
'''
PYTHON_TOKENS = ["def", "a", "(", "b", ")", ":", "return", '"', "#", "c", '"']

# Line by line: what opens a function, what does not, and where it ends.
FUNCTIONS = """#define MACRO(x) { x }
namespace a {
struct B : C {
  int n = f({1, 2});
 private:
  B(int m)
      : n{m}, C(m) {
    if (m) { g(); }
  }
  bool operator==(const B&) const = default;
  bool operator!=(const B& other) const { return "}" == other; }
};
enum class D { e };
const std::vector<int> f = {1, g(2), {3}};
const auto h = [](int i) {
  return i;
};
template <class T>
  requires std::same_as<T, int>
auto j(T t = {}) -> int {
  for (char k : "{") { k = '{'; }
}
}
"""
FUNCTION_LINES = [(6, 9), (11, 11), (15, 17), (18, 22)]


def words_and_signs():
    for text, tokens, cpp in ((CPP, CPP_TOKENS, True), (PYTHON, PYTHON_TOKENS, False)):
        counted = count.count_text(text, cpp)
        assert counted.tokens == len(tokens), (counted, tokens)
        assert counted.lines == text.count("\n"), counted


def functions():
    assert list(count.cpp_functions(FUNCTIONS)) == FUNCTION_LINES, [*count.cpp_functions(FUNCTIONS)]
    assert list(count.python_functions("@a\ndef b():\n    def c():\n        d\n    e\n")) == [
        (2, 5),
        (3, 4),
    ]


def what_is_too_long():
    long, short = ("void f() {\n" + "\n" * lines + "}\n" for lines in (59, 58))
    assert count.count_text(long, True, "a").long_functions == ["a:1: 61 lines"]
    assert count.count_text(short, True).long_functions == []
    lines = count.count_text("a" * 101 + "\n" + "b" * 100 + "\n" + "//" + "c" * 99 + "\n", True)
    assert (lines.long_lines, lines.lines) == (2, 3)
    assert round(lines.long_line_share, 3) == 0.667 and round(lines.tokens_per_line, 3) == 0.667


def rooms_and_sums():
    """In a tree of files with a known number of words."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    words = {
        "src/a/x.cpp": 1,
        "src/b/x.hpp": 2,
        "src/b/y/z.cpp": 4,
        "src/b/page.md": 1000,
        "src/instruments/c/x.cpp": 8,
        "miniapp/main.cpp": 16,
        "miniapp/instruments/x.cpp": 32,
        "scripts/lib/x.py": 64,
        "benchmarks/x.py": 256,
        "benchmarks/x.cpp": 512,
        "tests/a/x.cpp": 1024,
        "tests/a/x.py": 2048,
    }
    for name, number in words.items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text("word\n" * number, encoding="utf-8")
    (FOLDER / "scripts/program").write_text("#!/usr/bin/env python3\n" + "word\n" * 128)
    (FOLDER / "scripts/shell").write_text("#!/bin/sh\nword\n")
    count.REPOSITORY = FOLDER
    rows = list(count.rows())
    assert [(name, counted.tokens) for name, counted in rows] == [
        ("src/a", 1),
        ("src/b", 6),
        ("miniapp", 16),
        ("**core**", 23),
        ("src/instruments/c", 8),
        ("miniapp/instruments", 32),
        ("**instruments**", 40),
        ("**core and instruments**", 63),
        ("scripts", 192),
        ("benchmarks", 256),
        ("**Python**", 448),
        ("**benchmarks in C++**", 512),
        ("tests in C++", 1024),
        ("tests in Python", 2048),
        ("**tests**", 3072),
    ], rows
    assert count.markdown(rows).splitlines()[5] == "| **core** | 4 | 23 | 23 | 1.0 | 0.0 % | 0 |"


def expanded(path):
    """All paths of one with {a,b} in it."""
    head, brace, rest = path.partition("{")
    if not brace:
        return [path]
    words, rest = rest.split("}", 1)
    return [more for word in words.split(",") for more in expanded(head + word + rest)]


def section(page, title):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def the_reading_guide_is_true():
    """The files of the guide exist, and their lines are about as many as it says."""
    guide = section("CONTRIBUTING.md", "Read the code")
    rows = re.findall(r"^\| [^|]* \| (`[^|]*`) \| (\d+) \|$", guide, re.MULTILINE)
    assert len(rows) > 5, rows
    for files, said in rows:
        paths = [
            REPOSITORY / path for name in re.findall("`(.*?)`", files) for path in expanded(name)
        ]
        lines = count.count_files(paths).lines
        assert 0.7 < lines / int(said) < 1.3, f"{files} are {lines} lines, the guide says {said}"


def the_ways_through_the_code_are_there():
    """Classes and functions that the pages name are in the sources."""
    sources = [path for part in ("src", "miniapp") for path in (REPOSITORY / part).rglob("*.?pp")]
    words = set(re.findall(r"\w+", "".join(path.read_text(encoding="utf-8") for path in sources)))
    pages = section("CONTRIBUTING.md", "Find your way in the code")
    pages += section("CONTRIBUTING.md", "From main() to the kernel")
    named = set()
    for function, kind in re.findall(r"`([\w:]+)\(\)`|`([A-Z][a-z]\w+)`", pages):
        named |= {*function.split("::"), kind}
    assert len(named) > 20 and named - {""} <= words, named - words


def the_command():
    file = FOLDER / "file.cpp"
    file.write_text("int a;\n", encoding="utf-8")

    def call(*arguments):
        return programs.call(REPOSITORY / "scripts/count", *arguments)

    (row,) = json.loads(call("--json", file).stdout)
    expected = {"room": str(file), "files": 1, "lines": 1, "tokens": 3, "tokens_per_line": 3.0}
    assert {name: row[name] for name in expected} == expected and row["long_functions"] == [], row
    assert f"| {file} | 1 | 1 | 3 | 3.0 | 0.0 % | 0 |\n" in call(file).stdout
    assert call().stdout.count("\n") > 30
    assert call("missing").returncode == 2


words_and_signs()
functions()
what_is_too_long()
the_reading_guide_is_true()
the_ways_through_the_code_are_there()
rooms_and_sums()
the_command()
