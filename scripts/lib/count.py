# SPDX-License-Identifier: BSD-3-Clause
"""Counts how much there is to read: words and signs of the code without comments and doc strings,
lines, and what is too long. A shell script and a CMake file are not counted."""

import argparse
import ast
import dataclasses
import io
import json
import pathlib
import re
import sys
import tokenize

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = 100  # a longer line is a long one
FUNCTION_LINES = 60  # and a longer function

CPP = {".cpp", ".hpp", ".cu", ".cuh", ".h"}
COMMENT_OR_LITERAL = re.compile(
    r"""(?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/)
      | R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.VERBOSE,
)
NOT_OF_A_FUNCTION = re.compile(
    r"^[ \t]*(?:#(?:\\\n|[^\n])*|(?:public|protected|private):)", re.MULTILINE
)
# What a brace outside of functions opens.
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")
MEMBER_INITIALISER = re.compile(r"\)\s*(?:noexcept\s*)?(?<!:):(?!:).*[\w>]\s*$", re.DOTALL)
VALUE = re.compile(r"(?<!operator)(?<![=!<>])=(?![=\s]*\[)")


@dataclasses.dataclass
class Count:
    """What was counted in a file, or in all files of a room."""

    files: int = 0
    lines: int = 0  # physical ones: blank lines and comments too
    tokens: int = 0
    long_lines: int = 0
    long_functions: list = dataclasses.field(default_factory=list)  # "FILE:LINE: N lines"

    def __add__(self, other):
        return Count(*(getattr(self, name) + getattr(other, name) for name in vars(self)))

    @property
    def tokens_per_line(self):
        return self.tokens / max(self.lines, 1)

    @property
    def long_line_share(self):
        return self.long_lines / max(self.lines, 1)


def blanked(text):
    """As many lines of spaces."""
    return re.sub(r"[^\n]", " ", text)


def cpp_without_comments(text):
    return COMMENT_OR_LITERAL.sub(
        lambda found: blanked(found[0]) if found["comment"] else found[0], text
    )


def cpp_functions(text):
    """First and last line of every function outside of others, lambdas of a namespace too."""
    code = COMMENT_OR_LITERAL.sub(lambda found: blanked(found[0]), text)
    code = NOT_OF_A_FUNCTION.sub(lambda found: blanked(found[0]), code)
    open_braces = []  # kinds of those that are open
    parentheses = 0
    begin = 0  # of the declaration that a brace belongs to
    for sign in re.finditer(r"[(){};]", code):
        position, sign = sign.start(), sign[0]
        in_scope = all(kind == "scope" for kind in open_braces)
        if sign in "()":
            parentheses += 1 if sign == "(" else -1
        elif sign == "{":
            kind = brace_kind(code[begin:position]) if in_scope and parentheses == 0 else "other"
            open_braces.append(kind)
            if kind == "scope":
                begin = position + 1
        elif sign == "}" and open_braces:
            kind = open_braces.pop()
            if kind == "function":
                first = begin + len(code[begin:]) - len(code[begin:].lstrip())
                yield code.count("\n", 0, first) + 1, code.count("\n", 0, position) + 1
            if kind in ("function", "scope"):
                begin = position + 1
        elif sign == ";" and in_scope and parentheses == 0:
            begin = position + 1


def brace_kind(declaration):
    if "(" not in declaration or VALUE.search(re.sub(r"\([^()]*\)", "", declaration)):
        return "scope" if SCOPE.search(declaration) and "=" not in declaration else "other"
    return "other" if MEMBER_INITIALISER.search(declaration) else "function"


def python_without_comments(text):
    """Doc strings are comments."""
    lines = text.splitlines(keepends=True)

    def blank(first, begin, last, end):
        for line in range(first - 1, last):
            old = lines[line]
            left = begin if line == first - 1 else 0
            right = end if line == last - 1 else len(old.rstrip("\n"))
            lines[line] = old[:left] + " " * (right - left) + old[right:]

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            blank(token.start[0], token.start[1], token.end[0], token.end[1])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            value = node.body[0]
            blank(value.lineno, value.col_offset, value.end_lineno, value.end_col_offset)
    return "".join(lines)


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def is_cpp(path):
    return path.suffix in CPP


def is_python(path):
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return re.match(rb"#!.*python", file.readline(200)) is not None


def count_text(text, cpp, place=""):
    """What there is to read in the text of a file."""
    code = cpp_without_comments(text) if cpp else python_without_comments(text)
    functions = cpp_functions(text) if cpp else python_functions(text)
    lines = text.splitlines()
    return Count(
        files=1,
        lines=len(lines),
        tokens=len(re.findall(r"\w+|[^\w\s]", code)),
        long_lines=sum(len(line) > COLUMNS for line in lines),
        long_functions=[
            f"{place}:{first}: {last - first + 1} lines"
            for first, last in sorted(functions)
            if last - first >= FUNCTION_LINES
        ],
    )


def count_files(paths, wanted=lambda path: is_cpp(path) or is_python(path)):
    """Of files, and of all files in folders, those that are wanted."""
    total = Count()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and wanted(file):
                place = file.relative_to(REPOSITORY) if file.is_relative_to(REPOSITORY) else file
                total += count_text(file.read_text(encoding="utf-8"), is_cpp(file), place)
    return total


def rooms():
    """Names of parts, with their rooms: the name of each and what was counted in it."""

    def folders(parent):
        return [path for path in sorted((REPOSITORY / parent).iterdir()) if path.is_dir()]

    def counted(paths, wanted=is_cpp):
        return [(str(path.relative_to(REPOSITORY)), count_files([path], wanted)) for path in paths]

    programs = [path for path in (REPOSITORY / "miniapp").iterdir() if path.is_file()]
    core = [path for path in folders("src") if path.name != "instruments"]
    instruments = [*folders("src/instruments"), REPOSITORY / "miniapp/instruments"]
    python = [REPOSITORY / "scripts", REPOSITORY / "benchmarks"]
    return {
        "core": [*counted(core), ("miniapp", count_files(programs, is_cpp))],
        "instruments": counted(instruments),
        "Python": counted(python, is_python),
        "benchmarks in C++": counted([REPOSITORY / "benchmarks"]),
        "tests": [
            ("tests in C++", count_files([REPOSITORY / "tests"], is_cpp)),
            ("tests in Python", count_files([REPOSITORY / "tests"], is_python)),
        ],
    }


def rows():
    """Every room, then the sum of its part; and one of core and instruments after these."""
    parts = rooms()
    sums = {part: sum((count for _, count in rooms), Count()) for part, rooms in parts.items()}
    for part, counts in parts.items():
        if len(counts) > 1:
            yield from counts
        yield f"**{part}**", sums[part]
        if part == "instruments":
            yield "**core and instruments**", sums["core"] + sums["instruments"]


def markdown(rows):
    lines = [
        f"| room | files | lines | tokens | tokens a line | lines over {COLUMNS} columns"
        f" | functions over {FUNCTION_LINES} lines |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, count in rows:
        lines.append(
            f"| {name} | {count.files} | {count.lines} | {count.tokens} | {count.tokens_per_line:.1f}"
            f" | {100 * count.long_line_share:.1f} % | {len(count.long_functions)} |"
        )
    return "\n".join(lines)


def as_json(rows):
    return json.dumps(
        [
            {
                "room": name.strip("*"),
                **dataclasses.asdict(count),
                "tokens_per_line": count.tokens_per_line,
                "long_line_share": count.long_line_share,
            }
            for name, count in rows
        ],
        indent=2,
    )


def main():
    parser = argparse.ArgumentParser(prog="scripts/count", description=__doc__, allow_abbrev=False)
    parser.add_argument("paths", metavar="PATH", nargs="*", type=pathlib.Path)
    parser.add_argument("--json", action="store_true", help="with the places of long functions")
    options = parser.parse_args()
    for path in options.paths:
        if not path.exists():
            parser.error(f"there is no {path}")

    counted = [(str(path), count_files([path.resolve()])) for path in options.paths] or rows()
    print(as_json(counted) if options.json else markdown(counted))


if __name__ == "__main__":
    sys.exit(main())
