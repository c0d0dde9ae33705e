#!/usr/bin/env python3
"""report.py FILE.h5 [MORE.h5 ...] [-o report.html]: a result as one page, for a browser, a phone or paper.

The page holds verdict, figure of merit, all cases, throughput and memory, scaling, bytes, where the time went, planned against measured,
samples, timelines, device counters and provenance, as far as the files have them (docs/report.md). It needs no other file and no network.
"""

import argparse
import pathlib
import sys

sys.dont_write_bytecode = True  # the sources may lie where nobody may write
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent / "lib"))


def write(text, output):
    target = pathlib.Path(output)
    target.write_text(text, encoding="utf-8")
    print(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE.h5", nargs="+", help="result file of minitaw run")
    parser.add_argument("-o", "--output", metavar="PAGE.html", default="report.html", help="default: report.html")
    arguments = parser.parse_args()
    try:
        from report.load import BadFile, load
        from report.page import page
    except ImportError as error:
        sys.exit(f"report.py: needs Python with h5py and numpy ({error}); scripts/env brings them")
    try:
        write(page(load(arguments.files)), arguments.output)
    except BadFile as error:
        print(f"report.py: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"report.py: {arguments.output} cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
