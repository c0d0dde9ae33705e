# SPDX-License-Identifier: BSD-3-Clause
"""What a CI job reads of a comparison, also where nothing could be compared (docs/compare.md). Needs
nothing beyond Python, as perf-gate runs beside programs with an environment of their own."""

import contextlib
import html
import pathlib
import xml.etree.ElementTree as xml

from .command import BadInput, Parser, write_file

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def output_options():
    parser = Parser(add_help=False)
    add = parser.add_argument
    add("--junit", metavar="FILE.xml", help="write a test report for CI")
    add("--markdown", metavar="FILE.md", help="write a table for the summary of a CI job")
    return parser


def write_output(path, content):
    """If it was asked for."""
    if path:
        with contextlib.suppress(OSError):  # to write says it better
            pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)


def xml_text(root):
    xml.indent(root)
    return f"{HEAD}{xml.tostring(root, encoding='unicode')}\n"


def refusal_xml(sentence):
    counts = {"tests": "1", "failures": "0", "errors": "1"}
    root = xml.Element("testsuites", counts, name="minitaw compare")
    suite = xml.SubElement(root, "testsuite", counts, name="comparison", skipped="0", time="0")
    test = xml.SubElement(suite, "testcase", classname="minitaw", name="comparison", time="0")
    xml.SubElement(test, "error", message=sentence, type="ERROR")
    return xml_text(root)


def with_refusals(words, work):
    """What work() returns. A sentence that it refuses with goes to the files too that the words
    name."""
    files, _ = output_options().parse_known_args(words)
    try:
        return work()
    except (BadInput, OSError, ImportError) as error:
        sentence = "".join(one if one.isprintable() else " " for one in str(error))
        write_output(files.junit, refusal_xml(sentence))
        markdown = f"**ERROR**: nothing was compared: {html.escape(sentence, quote=False)}\n"
        write_output(files.markdown, markdown)
        raise
