"""Bytes between groups, throughput and memory against sequence length, and where the time of a step went, as pictures: a column of panels
for each setting but schedule and sequence length. Cases that are not valid are left out and counted in the title."""

import pathlib
import textwrap

from .command import BadInput, Parser, put_out
from .figures import MOST_PANELS, chart_figure, charts_of, panels, save, shared_settings, styles_of
from .record import load


def draw(cases, title):
    styles = styles_of(case["schedule"] for case in cases)
    columns = [(name, charts_of(some, styles, lambda case: case["schedule"])) for name, some in panels(cases)[:MOST_PANELS]]
    if len(columns) == 1:  # two by two
        columns = [("", columns[0][1][side::2]) for side in (0, 1)]
    drawn = chart_figure(columns, 6.5, legend_columns=3 * len(columns))
    drawn.suptitle(textwrap.fill(title, 80 * len(columns)), fontsize="medium")
    return drawn


def title_of(cases, count):
    """What all cases share, the shape of links, and how many cases are left out."""
    links = dict.fromkeys(" ".join(case.session.get("links", [])) for case in cases)
    bad = f"{count - len(cases)} of {count} cases not valid, left out" if count > len(cases) else ""
    noisy, parts = sum(bool(case.doubt) for case in cases), len(panels(cases))
    return "; ".join(filter(None, [", ".join(shared_settings(cases)), *(f"links between nodes: {text}" for text in links if text), bad,
                                   f"{noisy} of {len(cases)} cases in doubt (noisy or no warm-up)" if noisy else "",
                                   f"the first {MOST_PANELS} of {parts} panels" if parts > MOST_PANELS else ""]))


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
    drawn = draw(valid, title_of(valid, len(cases)))
    for suffix in (".png", ".svg"):
        save(drawn, f"{prefix}{suffix}")
        put_out(f"{prefix}{suffix}\n")
