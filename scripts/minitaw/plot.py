"""Bytes between groups, throughput and memory against sequence length, and where the time of a step went, as pictures: a column of panels
for each number of ranks. Cases that are not valid are left out and counted in the title."""

import pathlib

from .command import BadInput, Parser, put_out
from .figures import SETTINGS, chart_figure, charts_of, grouped, save, setting_text, styles_of, telling
from .record import load


def naming_of(cases):
    """Schedule, and what else differs between cases with the same number of ranks and tokens."""
    varied = dict.fromkeys(name for some in grouped(cases, lambda case: case["ranks"]).values() for name in telling(some, ("schedule", "seq", *SETTINGS)))
    varied = [name for name in varied if name not in ("schedule", "seq")]
    return lambda case: ", ".join([case["schedule"], *[setting_text(name, case[name]) for name in varied]])


def draw(cases, title):
    columns, naming = sorted(grouped(cases, lambda case: case["ranks"]).items()), naming_of(cases)
    styles = styles_of(map(naming, cases))
    found = [(setting_text("ranks", ranks), charts_of(some, styles, naming)) for ranks, some in columns]
    if len(found) == 1:  # two by two
        found = [("", found[0][1][side::2]) for side in (0, 1)]
    drawn = chart_figure(found, 6.5, legend_columns=3 * len(found))
    drawn.suptitle(title, fontsize="medium")
    return drawn


def title_of(cases, count):
    """What all cases share of what a reader has to know, the shape of links, and how many cases are left out."""
    same = [setting_text(name, cases[0][name]) for name in ("ranks", "groups", "layers", "hidden", "micro_batches", "dtype") if len({case[name] for case in cases}) == 1]
    links = dict.fromkeys(" ".join(case.session.get("links", [])) for case in cases)
    bad = f"{count - len(cases)} of {count} cases not valid, left out" if count > len(cases) else ""
    noisy = sum(bool(case.doubt) for case in cases)
    return "; ".join(filter(None, [", ".join(same), *(f"links between nodes: {text}" for text in links if text), bad,
                                   f"{noisy} of {len(cases)} cases in doubt (noisy or no warm-up)" if noisy else ""]))


def main(words=None):
    parser = Parser(prog="plot", description=__doc__)
    parser.add_argument("file", metavar="FILE.h5", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PREFIX", help="name of the pictures without suffix, or a folder")
    options = parser.parse_args(words)
    cases = load(options.file).cases
    valid = [case for case in cases if case.valid]
    if not valid:
        raise BadInput(f"{options.file} has no valid case to plot ({len(cases)} in all)")
    stem, output = pathlib.Path(options.file).with_suffix(""), options.output
    prefix = stem if output is None else pathlib.Path(output, stem.name) if output.endswith("/") or pathlib.Path(output).is_dir() else pathlib.Path(output)
    if not prefix.parent.is_dir():
        raise BadInput(f"there is no folder {prefix.parent} to write to")
    drawn = draw(valid, title_of(valid, len(cases)))
    for suffix in (".png", ".svg"):
        save(drawn, f"{prefix}{suffix}")
        put_out(f"{prefix}{suffix}\n")
