# SPDX-License-Identifier: BSD-3-Clause
"""The commands that pages, decks and scripts name, and the links of pages."""

import dataclasses
import re

# How a command begins, after settings of the environment.
OURS = (
    r"(?:\./)?(?:scripts/[\w-]+|benchmarks/(?:results/)?\w+\.py|examples/[\w/-]+"
    r"|minitaw(?:_\w+)?|mpiexec|build/[\w/]+|\.ci/run)"
)
THEIRS = (
    r"srun|sbatch|scancel|spack|module|cmake|ctest|podman|apptainer|git|python3|tar|cd|ncu|sed"
    r"|reframe|jube|ramble|export|nvidia/bin/\w+|packed/run|numactl|nvidia-smi|doxygen"
)
BEGIN = re.compile(
    rf"(?:\.\.\. |\$ |[A-Za-z_]+=\S* |site=)*(?:(?:{OURS}|{THEIRS})(?= |$)" r"|\.\.\. |site=|head )"
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
# [--set KEY=VALUE ...]: how to write commands
FORM = re.compile(r"(?:^| )\[|\w\[[,=-]|\.\.\.|<\w")
# Commands in sentences that are executed, beside those that name a deck.
SENTENCES = {
    "minitaw help keys",
}
HEADS = ("inputs", "examples", "scripts", "benchmarks")
KINDS = ("", ".py", ".toml", ".yaml", ".yml", ".sbatch", ".sh")


@dataclasses.dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str  # as it stands there, lines that go on joined
    executes: bool  # it stands in a block, or is whole in a sentence

    @property
    def is_form(self):
        return FORM.search(self.words) is not None

    @property
    def words(self):
        """Without the remark after it."""
        return re.sub(r"\s+# .*", "", self.text.removeprefix("$ ")).strip()

    @property
    def essence(self):
        """Without names of results, and without the ways of writing where a program is."""
        places = r"OMP_\w+=\S+ |scripts/env |\./|build/(host|cuda)/(benchmarks/\w+/)?"
        words = re.sub(places, "", self.words)
        return re.sub(r"[\w./-]+\.(h5|tar\.gz|md|json|png|html|txt)\b", r"FILE.\1", words)

    @property
    def place(self):
        return f"{self.page}:{self.line}: {self.words}"


def joined_lines(text):
    """(number, line): one that ends with a backslash, or before an indented one, goes on."""
    found = []
    for number, line in enumerate(text.splitlines()):
        goes_on = found and (found[-1][1].endswith("\\") or line.startswith("    "))
        if goes_on and line.strip():
            begun = found[-1][1].removesuffix("\\").rstrip()
            found[-1] = (found[-1][0], f"{begun} {line.strip()}")
        elif line.strip():
            found.append((number, line.rstrip()))
    return found


def of_block(path, first, text):
    """The lines of a block are commands if the first one is; after `$ ` there are answers, too."""
    lines = joined_lines(text)
    if not lines or not BEGIN.match(lines[0][1]):
        return []
    answers = [line for _, line in lines if not BEGIN.match(line)]
    if answers and not text.lstrip().startswith("$"):
        raise SystemExit(f"{path}:{first}: tests/commands does not know how these begin: {answers}")
    return [
        Command(path, first + number, line, True) for number, line in lines if BEGIN.match(line)
    ]


def of_sentences(path, text):
    """Each by itself; those that name a deck and nothing to fill in are whole."""
    blank = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    for span in SPAN.finditer(blank):
        words = " ".join(span[1].split())
        if not BEGIN.match(words) or " " not in words:
            continue
        whole = re.search(r"inputs/\S+\.toml", words) and not re.search(r"\b[A-Z]+\b", words)
        line = blank[: span.start()].count("\n") + 1
        yield [Command(path, line, words, bool(whole) or words in SENTENCES)]


def of_page(path, text):
    """Lists of commands that are executed in one folder, one after the other."""
    blocks = []
    for block in BLOCK.finditer(text):
        first = text[: block.start(2)].count("\n") + 1
        found = of_block(path, first, block[2]) if block[1] in ("", "sh") else []
        if found:
            blocks.append(found)
    yield from blocks
    yield from of_sentences(path, text)


def of_head(path, text):
    """Indented lines of the comment, or of the text of a Python script, that it begins with."""
    if path.endswith(".py"):
        head, indent = text.partition('"""')[2].partition('"""')[0], 4
    else:
        comment = re.match(r"(?:#.*\n)*", text)[0].splitlines()
        head, indent = "\n".join(line[1:] for line in comment), 3
    lines = [line[indent:] for line in head.splitlines() if line.startswith(" " * indent)]
    for _, line in joined_lines("\n".join(lines)):
        if BEGIN.match(line):
            yield [Command(path, 1, line, True)]


def pages_of(repository):
    """Paths of the pages that people read; decisions and changes tell of their day."""
    names = ["README.md", "CONTRIBUTING.md", ".github/pull_request_template.md"]
    for folder in ("docs", "results", "tests"):
        found = (path.relative_to(repository) for path in (repository / folder).rglob("*.md"))
        names += sorted(str(path) for path in found if "decisions" not in path.parts)
    return names


def all_commands(repository):
    for page in pages_of(repository):
        text = (repository / page).read_text(encoding="utf-8")
        old = re.match(r"results/.*/\d{4}-", page)  # commands of the program of that day
        for found in of_page(page, text):
            if old:
                found = [dataclasses.replace(c, executes=c.words in SENTENCES) for c in found]
            yield found
    for folder in HEADS:
        for path in sorted((repository / folder).rglob("*")):
            if path.is_file() and path.suffix in KINDS and "__pycache__" not in path.parts:
                name = str(path.relative_to(repository))
                yield from of_head(name, path.read_text(encoding="utf-8"))


def anchors_of(text):
    """As GitHub makes them of headings: small letters, no signs, lines for spaces."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def broken_links(repository):
    """Links of pages to files and headings that are not there."""
    for page in [*pages_of(repository), "CHANGELOG.md"]:
        text = BLOCK.sub("", (repository / page).read_text(encoding="utf-8"))
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"\w+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (repository / page).parent / name if name else repository / page
            if not target.exists():
                yield f"{page}: no file {link}"
            elif anchor and target.suffix == ".md":
                if anchor not in anchors_of(target.read_text(encoding="utf-8")):
                    yield f"{page}: no heading {link}"


def paths_of(text):
    """a/{b,c}.d: a/b.d, a/c.d"""
    braces = re.search(r"\{([^}]*)\}", text)
    if braces is None:
        return [text]
    words = [text[: braces.start()] + w + text[braces.end() :] for w in braces[1].split(",")]
    return [path for word in words for path in paths_of(word)]


def names_of_nothing(repository):
    """Functions and files that the guides to the code name, and the code has not."""
    sources = [p for f in ("src", "miniapp", "tests") for p in (repository / f).rglob("*.[ch]pp")]
    code = set(re.findall(r"\w+", " ".join(p.read_text(encoding="utf-8") for p in sources)))
    for page in ("CONTRIBUTING.md", "docs/extending.md"):
        whole = (repository / page).read_text(encoding="utf-8")
        text = BLOCK.sub("", whole)
        example = {word for m in BLOCK.finditer(whole) for word in re.findall(r"\w+", m[0])}
        for function in re.findall(r"`(?:\w+(?:::|\.))*(\w+)\(", text):
            if function not in code | example:
                yield f"{page}: no function {function}()"
        for path in re.findall(r"`((?:src|miniapp)/[\w/.{},]*)`", text):
            for one in paths_of(path):
                if not (repository / one).exists():
                    yield f"{page}: no file {one}"
