# SPDX-License-Identifier: BSD-3-Clause
"""What pages tell readers to type: the recipes of README and docs are executed, with small decks;
of all commands program, verb, options and files exist."""

import contextlib
import functools
import io
import pathlib
import re
import shlex
import shutil

import pytest
from minitaw import command
from programs import BUILD, MINITAW, REPOSITORY, SAMPLE, SMALL, call, process, script

KERNELS = BUILD / "benchmarks/minitaw_kernels"
COMM = BUILD / "benchmarks/comm/minitaw_comm"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks_of(page):
    """What a reader may type."""
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind in ("", "sh")]


def joined(text):
    """A line that ends with a backslash, or before more options, goes on."""
    return re.sub(r" *\\\n#? *|\n {4,}(?=[\[|]|--)", " ", text)


# Executed

# Of these pages a command asks for a device, many ranks or much time.
LEFT_OUT = ("gpu", "long", "performance")
PAGES = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/*.md"))]
# Not: builds, Slurm and its logs, containers, modules, other suites; test_perf_gate.py has the gate,
# test_links.py the tables of benchmarks/results.
EXECUTED = re.compile(
    r"(?!.*(build/cuda|--log slurm))((\w+=\S+ )*(\./)?(minitaw|mpiexec|build/host/minitaw)|"
    r"(\w+=\S+ )*scripts/(cluster|env (mpiexec|(build/host|scripts)\S+))|(mkdir \w+ && )?tar x\w+|"
    r"head|python3 -c) "
)
# 1 is a verdict, as on the sample, some of whose cases failed; 3: other programs take the cores.
VERDICT = re.compile(r"scripts/(compare|check-rules)|minitaw (show|screen)")
LESS = [
    (r"(?<![\w/-])(\./|build/host/)?minitaw(?= )", str(MINITAW)),
    (r"scripts/env (?=mpiexec|build)", ""),
    (r"\S*minitaw_kernels", "less/minitaw_kernels"),
    (r"\S*minitaw_comm", f"{COMM} --rounds 2"),
    (r"\bscreen\b", "screen --rounds 2 --seconds 0.005"),
    (r"-n (P|\d+)\b", "-n 2"),
    (r"--groups 2\+2", "--groups 1+1"),
    ("nodes=64", "nodes=1 --set dtype=bf16"),
    (r"(\S+(-paper|-8b)\.toml)", r"\1 --set dtype=bf16"),
    (r"(run \S+/small\.toml)", r"\1 --set groups=2"),
    ("fit-machine", "fit-machine --minitaw less/minitaw"),
    (r"(?<=[ =])DECK\b", "inputs/small/table.toml"),
    (r"\bseq=[\w,]+,\w+", "seq=24,40"),
    (r"\bseq=\w+(?!\S)", "seq=24"),
]
# In the place of every deck; tests/deck reads the real ones.
DECK = (
    SMALL
    + """schedule = ["tawpipe", "fsdp"]
ranks = 2
vocab = 256
seq = 24
micro_batches = 16
"""
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """What commands find where they are typed, in the repository."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copytree(REPOSITORY / "inputs", folder / "inputs")
    for path in (folder / "inputs").rglob("*.toml"):
        if path.parent.name != "machines":
            path.write_text(DECK)
    for name in ("scripts", "mpiexec"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "less").mkdir()
    for program, less in (
        (MINITAW, "--rounds 2 --seconds 0.005"),
        (KERNELS, "--triad-mib=1 --benchmark_min_time=0.001s"),
    ):
        path = folder / "less" / program.name
        path.write_text(f'#!/bin/sh\nexec {program} "$@" {less}\n')
        path.chmod(0o755)
    shutil.copy(SAMPLE, folder / "less/medium.h5")
    script("check-rules", folder / "less/medium.h5", "--archive", folder / "sample.tar.gz")
    return folder


def recipes():
    for page in PAGES:
        for block in blocks_of(page):
            lines = [line for line in joined(block).splitlines() if EXECUTED.match(line)]
            if lines and page.stem not in LEFT_OUT and not re.search(r"\[-|\.\.\.", str(lines)):
                yield pytest.param(lines, id=f"{page.stem}: {lines[0][:40]}")


def add_files(tree, text):
    """Those that commands read and do not write themselves."""
    written = set(re.findall(r"(?:-o|--archive|>) (\S+)", text))
    for name in set(re.findall(r"[\w-]+\.(?:h5|tar\.gz|toml)\b", text)) - written:
        source = {"h5": SAMPLE, "gz": tree / "sample.tar.gz"}.get(name.rpartition(".")[2])
        shutil.copy(source or tree / "inputs/machines/cluster-2x2.toml", name)


@pytest.mark.parametrize("lines", recipes())
def test_the_recipe_works(lines, tree):
    if "scripts/cluster" in str(lines) and not shutil.which("mpiexec.hydra"):
        pytest.skip("scripts/cluster wants the launcher of MPICH")
    for entry in tree.iterdir():
        pathlib.Path(entry.name).symlink_to(entry)
    add_files(tree, "\n".join(lines))
    for line in lines:
        for pattern, less in LESS:
            line = re.sub(pattern, less, line)
        words = shlex.split(line.removeprefix("scripts/env "), comments=True)
        if words[0].startswith("scripts/") and not re.search(r" (>|--) |\*", line):
            done = script(words[0].removeprefix("scripts/"), *words[1:])
        else:
            done = call("bash", "-c", line)
        codes = (0, 1, 3) if VERDICT.search(line) else (0,)
        assert done.returncode in codes, (line, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr


def test_python_starts_in_the_environment():
    bare = r"^scripts/(check-rules|compare|fit-machine|plot|report|timeline|trend) .*"
    for page in [*PAGES, *REPOSITORY.glob("results/**/*.md")]:
        assert not re.findall(bare, "".join(blocks_of(page)), re.MULTILINE), page


# Looked up

PROGRAM = re.compile(
    r"(?<![\w/-])(?:\./|build/(?:[\w-]+/)+)?"
    r"(minitaw(?:_kernels|_comm)?|scripts/[\w-]+|benchmarks/(?:results/)?\w+\.py)"
    r"(?: ([a-z]\w*))?(?=[\s)]|$)"
)
PROGRAMS = {
    "minitaw": MINITAW,
    "minitaw_kernels": KERNELS,
    "minitaw_comm": COMM,
}


@functools.cache
def help_of(program, verb):
    """All its options stand in it; empty if there is no such program or verb."""
    path = REPOSITORY / program
    if program in PROGRAMS:
        return call(PROGRAMS[program], *filter(None, [verb]), "--help").stdout
    if not path.is_file():
        return "a folder" * path.is_dir()
    text = path.read_text()
    if path.suffix == ".py":
        return text
    if "minitaw.command" not in text:
        return process(path.name, "--help").stdout
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit):
        command.call(path.name, ["--help"])
    return out.getvalue()


def missing(line):
    """Programs, verbs, options and files that the line names and that do not exist."""
    line = re.sub(r"\s#\s.*|scripts/env |\"[^\"]*\"|'[^']*'", " ", line)
    ends = [found.start() for found in PROGRAM.finditer(line)][1:] + [None]
    for found, end in zip(PROGRAM.finditer(line), ends):
        tail = re.split(r" -- |&&|;| \| ", line[found.end() : end])[0]
        said = help_of(*found.groups())
        if not said:
            yield found[0]
        for option in re.findall(r"(?<![\w-])--(?!benchmark)[a-z][\w-]*", tail):
            if not re.search(rf"{option}(?![\w-])", said):
                yield f"{found[0]} {option}"
    for path in re.findall(r"(?<![\w./-])(?:inputs|examples|packaging)/[\w./-]+\w(?![\w*])", line):
        if not (REPOSITORY / path).exists():
            yield path


def lines_of(path):
    """What begins as a command does, if in a comment, or stands in backticks."""
    text = joined(path.read_text().replace('"$program"', "minitaw"))
    names = "mpiexec|srun|scripts/|benchmarks/|build/|minitaw"
    begin = rf"^[\s#-]*(?:run: |exec |\$ )?((?:\w+=\S+ )*(?:\./)?(?:{names}).* .*)"
    spans = re.findall(r"`([^`]+)`", BLOCK.sub("", text)) if path.suffix == ".md" else []
    return re.findall(begin, text, re.MULTILINE) + [" ".join(span.split()) for span in spans]


def test_commands_name_what_exists():
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")]
    for folder in ("results", "tests"):
        pages += (REPOSITORY / folder).rglob("*.md")
    for folder in ("inputs", "examples", "scripts", "benchmarks"):
        pages += (REPOSITORY / folder).rglob("*")
    pages = [path for path in pages if path.is_file() and path.suffix != ".pyc"]
    named = {line: path for path in pages for line in lines_of(path) if PROGRAM.search(line)}
    assert len(named) > 200
    assert [
        (path, line, *missing(line)) for line, path in named.items() if any(missing(line))
    ] == []
    planted = "scripts/cluster --nodez 2 -- minitaw rum inputs/no.toml --json | scripts/no"
    assert len([*missing(planted)]) == 5
