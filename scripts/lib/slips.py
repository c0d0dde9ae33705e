# SPDX-License-Identifier: BSD-3-Clause
"""The defects that scripts/mutate generates: what a hurried person could have written instead of
a part of one line of C++ or Python."""

import re

# Strings, comments, and lines that compute nothing.
PYTHON_TEXT = r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|#.*'
CPP_TEXT = (
    r'R"\([\s\S]*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//.*|'
    r"^ *(?:#|using|template|namespace|static_assert|throw).*"
)

# Brackets and what is between them, other brackets too.
ROUND, SQUARE = r"\([^()]*\)", r"\[[^][]*\]"
for _ in range(3):
    ROUND, SQUARE = rf"\((?:[^()]|{ROUND})*\)", rf"\[(?:[^][]|{SQUARE})*\]"

# One operand: a.b(c, d)[0], static_cast<double>(n), a hidden string.
TERM = rf"(?:[\w.:\0]|->|<\w+>|{ROUND}|{SQUARE})+"
PYTHON_LOOP = rf"(\bfor [\w, ()]+ in )((?:[\w.\0]|{ROUND}|{SQUARE})+)"
LOOP_ENDS = r"(?= if |[])}:]|$)"
STEP = r"(?!return|raise|case)[\w.:>()\[\]*-]+(?: [-+*/|]?= |\().*"  # a call or an assignment
FACTOR = r"(?:\d+e-?\d+|2\*\*-?\d+|(?:2|8|100|1000|1024)(?:\.0)?|0\.5)(?![\w.*])"
BOUND = r"\w*(?i:tolerance|limit|slack|threshold|epsilon|eps)\w*"
COUNTED = r"(?:rank|node|group|replica|step|sample|count|size|len)"
OF_SEVERAL = (
    rf"(?:numpy\.|(?<![\w.:>]))(?:max|min|sum|median|mean)"
    rf"\(((?:[^][(),]|{ROUND}|{SQUARE})+)(?:, (?:key|default)={TERM})?\)"
)

SIGNS = (
    "<= <",
    "> >=",
    ">= >",
    "== !=",
    "!= ==",
    "&& ||",
    "|| &&",
    "+ -",
    "- +",
    "* /",
    "/ *",
    "% *",
    "+= -=",
    "-= +=",
    "and or",
    "or and",
)
WORDS = (
    "max min",
    "min max",
    "true false",
    "false true",
    "True False",
    "False True",
    "any all",
    "any_of all_of",
    "all_of any_of",
)

# Of each kind: patterns, and what takes the place of a match; \1 is its first group. Spaces stand
# around operators, and not around pointers and templates.
KINDS = {
    "sign": [
        *((rf"(?<= ){re.escape(a)}(?= )", b) for a, b in map(str.split, SIGNS)),
        (
            r"^(?!.*\bfor )(.* )<(?= )",
            r"\1<=",
        ),  # a loop would read beyond an array: sanitizers see it
        (r"(?<!; )\+\+", "--"),
    ],
    "word": [(rf"\b{a}\b", b) for a, b in map(str.split, WORDS)],
    "number": [
        (r"(?<![\w.'])\d+(?![\w.'])", lambda number: str(int(number) + 1)),
        (r"(?<![\w.'])(?:\d+\.\d+|\d+(?=e))(?:e-?\d+)?\b", r"(1.1 * \0)"),
    ],
    "index": [(r"(?<=[\w)\]])\[[a-z_][\w.]*\]", "[0]")],
    "condition": [
        (r"(?<![\w)])!(?=[\w(])|\bnot (?!in)", ""),
        (r" \? ([^?:;]+) : ([^?:;,]+)(?=[;,)])", r" ? \2 : \1"),
        (rf"\bif ({ROUND})", r"if (!\1)"),
        (r"\bif ([^(].*):$", r"if not (\1):"),
    ],
    "result": [(r"(?<=return )(?!\{\};).+(?=;$)", "{}"), (r"(?<=return )(?!None).*[^;]$", "None")],
    "statement": [(rf"^( +){STEP};$", r"\1{}"), (rf"^( +){STEP}(?<![;,({{[])$", r"\1pass")],
    # The first or the last one, instead of what all together give.
    "one": [
        (OF_SEVERAL, r"[*(\1)][0]"),
        (OF_SEVERAL, r"[*(\1)][-1]"),
        (r"\.(?:max|min|mean|sum)\(axis=0\)", "[0]"),
        (r"\.(?:max|min|mean|sum)\(axis=1\)", "[:, 0]"),
        (r"\.(?:max|min|mean|sum)\(\)", ".flat[0]"),
        (rf"\*std::ranges::(?:max|min)_element\(([\w.]+)(?:[^()]|{ROUND})*\)", r"\1.front()"),
        (r"\bstd::ranges::(?:max|min)\(([\w.]+)\)", r"\1.back()"),
        (rf"({TERM}) = std::(?:max|min)(?:<[\w:]+>)?\(\1, (.*)\)(?=;)", r"\1 = \2"),
    ],
    # A loop that leaves out the first or the last one.
    "loop": [
        (r"(?<= = )0(?=; \w+ <)", "1"),
        (r"(?<=; )(\w+)(?= < )", r"\1 + 1"),
        (rf"(\bfor \([^;]* : )({TERM})\)", r"\1\2 | std::views::drop(1))"),
        (PYTHON_LOOP + LOOP_ENDS, r"\1[*\2][1:]"),
        (PYTHON_LOOP + LOOP_ENDS, r"\1[*\2][:-1]"),
    ],
    # What is left out no more.
    "guard": [
        (rf"\bif {ROUND}(?= (?:continue|return|break)\b)", "if (false)"),
        (r"\bif .*:$", "if False:"),
        (rf"{PYTHON_LOOP} if (?:[^][(){{}}]|{ROUND}|{SQUARE})+(?=[])}}])", r"\1\2"),
    ],
    "exchange": [(rf"(?<=\w\()(?<!max\()(?<!min\()({TERM}), ({TERM})(?=[,)])", r"\2, \1")],
    "unit": [(rf" [*/] {FACTOR}", ""), (rf"(?<![\w.]){FACTOR} \* ", ""), (r" << \d+", "")],
    "tolerance": [
        (rf"(?<=[<>=] )((?:[\w.]|->)*{BOUND})", r"100 * \1"),
        (rf"(\b{BOUND} = )(?=\d)", r"\1100 * "),
    ],  # group 1, then 100
    "division": [(rf" / (?=[\w.:<>(]*{COUNTED}){TERM}", "")],
    "sum": [(r"(?<= )[+|]=(?= )", "=")],
}


def code_of(text, python):
    """The text with its strings and comments hidden, each letter as one \\0."""
    pattern = PYTHON_TEXT if python else CPP_TEXT
    return re.sub(pattern, lambda match: re.sub(".", "\0", match[0]), text, flags=re.M)


def in_balance(part):
    """Whether it closes what it opens; a lone < is a sign."""
    pairs = all(part.count(a) == part.count(b) for a, b in ("()", "[]", "{}"))
    return pairs or part[-1] == "<"


def slips_in(line, code, kinds=""):
    """(kind, number of the pattern) and the new line, for every match in the code of a line."""
    for kind in filter(re.compile(kinds).search, KINDS):
        for number, (pattern, replacement) in enumerate(KINDS[kind]):
            for match in filter(lambda match: in_balance(match[0]), re.finditer(pattern, code)):
                new = line[: match.start()] + put_in(replacement, match, line) + line[match.end() :]
                if new != line:
                    yield (kind, number), new


def put_in(replacement, match, line):
    """With what stands in the line at the places of the groups: in the code strings are hidden."""
    if callable(replacement):
        return replacement(match[0])
    return re.sub(r"\\(\d)", lambda group: line[slice(*match.span(int(group[1])))], replacement)
