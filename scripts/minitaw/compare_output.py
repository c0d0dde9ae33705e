"""The comparison for people, programs, CI jobs, and its command line."""

import json
import math
import re
import xml.etree.ElementTree as xml

from .command import BadInput, Parser, put_out, write_file
from .compare import Rules, compare, read_side, require_known
from .record import ranks_text

MEMORY, BYTES, LOSSES = ("memory", "process peak", "device memory"), ("bytes inside", "bytes between"), ("first loss", "last loss")
# Name, unit, whether left-aligned, cell.
COLUMNS = [
    ("case", "", False, lambda c: str(c.case["case"])),
    ("schedule", "", True, lambda c: c.case["schedule"]),
    ("ranks", "", False, lambda c: ranks_text(c.case)),
    ("groups", "", True, lambda c: c.case["groups"]),
    ("seq", "token", False, lambda c: str(c.case["seq"])),
    ("B", "", False, lambda c: str(c.case["micro_batch"])),
    ("M", "", False, lambda c: str(c.case["micro_batches"])),
    ("base", "s", False, lambda c: figure(c.aspects["time"].base)),
    ("new", "s", False, lambda c: figure(c.aspects["time"].new)),
    ("ratio", "", False, lambda c: ratio(c, "estimate")),
    ("low", "", False, lambda c: ratio(c, "low")),
    ("high", "", False, lambda c: ratio(c, "high")),
    ("time", "", True, lambda c: word(c, ["time"])),
    ("memory", "", True, lambda c: word(c, MEMORY)),
    ("bytes", "", True, lambda c: word(c, BYTES)),
    ("loss", "", True, lambda c: word(c, LOSSES)),
    ("verdict", "", True, lambda c: word(c, ["verdict"])),
]


def figure(value):
    return f"{value:.4g}" if math.isfinite(value) else "-"


def ratio(c, part):
    interval = c.aspects["time"].ratio
    return f"{getattr(interval, part):.3f}" if interval else "-"


def word(c, names):
    return c.worst(names).word or "-"


def aligned(columns, rows):
    """Two lines of names and units that begin with #, then one line a row. columns: (name, unit, whether left-aligned, cell)."""
    cells = [[name, unit, *[cell(row) for row in rows]] for name, unit, _, cell in columns]
    widths = [max(map(len, column)) for column in cells]
    lines = []
    for i in range(len(rows) + 2):
        parts = [column[i].ljust(width) if left else column[i].rjust(width) for column, width, (_, _, left, _) in zip(cells, widths, columns)]
        lines.append((("# " if i < 2 else "  ") + " ".join(parts)).rstrip() + "\n")
    return "".join(lines)


def rules_text(rules):
    text = (f"threshold {100 * rules.threshold:.4g} %, memory {100 * rules.memory_threshold:.4g} %, confidence {100 * rules.confidence:.4g} %")
    return text + (f", quantile {rules.quantile:g}" if rules.quantile > 0 else "")


def mean_text(comparison):
    if not comparison.mean:
        return "no geometric mean: the cases were not measured together often enough"
    low, estimate, high = comparison.mean
    return f"all cases together: new / base = {estimate:.3f}, from {low:.3f} to {high:.3f} (geometric mean)"


def as_text(comparison, base, new):
    """For people: notes behind #, one aligned row per case, the closing line."""
    text = f"# base: {base}\n# new:  {new}\n# {rules_text(comparison.rules)}\n" + "".join(f"# {note}\n" for note in comparison.notes)
    text += aligned(COLUMNS, comparison.cases)
    for c in comparison.cases:
        text += "".join(f"# case {c.case['case']}: {a.word}: {a.reason}\n" for a in c.aspects.values() if a.reason)
    if len(comparison.cases) > 1:
        text += f"# {mean_text(comparison)}\n"
    return text + f"COMPARISON: {comparison.text()}\n"


def number(value):
    return value if math.isfinite(value) else None


def interval_json(interval):
    return interval and {"estimate": number(interval.estimate), "low": number(interval.low), "high": number(interval.high)}


def aspect_json(aspect):
    found = {"outcome": aspect.outcome, "word": aspect.word}
    if aspect.units:
        found |= {f"base [{aspect.units}]": number(aspect.base), f"new [{aspect.units}]": number(aspect.new)}
    if aspect.name == "time":
        found["ratio"] = interval_json(aspect.ratio)
    return found | {"reason": aspect.reason}


def case_json(c):
    return {"case": c.case["case"],
            "settings": {name: c.case[name] for name in c.case.file.settings if name != "identity"},
            "differs": c.differs,
            "measured_by": c.times.unit,
            "measurements_base": len(c.times.base),
            "measurements_new": len(c.times.new),
            "aspects": {name: aspect_json(aspect) for name, aspect in c.aspects.items()}}


def as_json(comparison, base, new):
    """One object; figures that do not exist are null."""
    rules = comparison.rules
    found = {"comparison": comparison.text(), "outcome": comparison.outcome, "base": base, "new": new, "threshold": rules.threshold,
             "memory_threshold": rules.memory_threshold, "confidence": rules.confidence, "quantile": rules.quantile,
             "mean_ratio": interval_json(comparison.mean), "notes": comparison.notes, "only_base": comparison.only_base,
             "only_new": comparison.only_new, "cases": [case_json(c) for c in comparison.cases]}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def result_of(aspect, strict):
    """What is AMBIGUOUS counts as skipped, with `strict` as failed."""
    if aspect.outcome == "worse" or (strict and aspect.outcome == "ambiguous"):
        return "failed"
    return "skipped" if aspect.outcome in ("none", "ambiguous") else "passed"


def xml_text(text):
    """XML 1.0 has no control characters, halves of pairs, U+FFFE and U+FFFF, not even escaped; names in a file may hold anything."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "?", text)


def values_text(aspect):
    if not math.isfinite(aspect.base) and not math.isfinite(aspect.new):
        return ""
    return f"base {aspect.base:.9g} {aspect.units}, new {aspect.new:.9g} {aspect.units}"


def seconds_of(aspect):
    """Step time of the new side for the test of the time, so that a viewer's history shows it; else none."""
    return f"{aspect.new if aspect.name == 'time' and math.isfinite(aspect.new) else 0:.9f}"


def add_test(suite, c, aspect, result):
    test = xml.SubElement(suite, "testcase", classname=xml_text(f"minitaw.{c.label}"), name=aspect.name, time=seconds_of(aspect))
    why = xml_text(f"{aspect.word}: {aspect.reason}" if aspect.word else "nothing to compare")
    if result == "failed":
        xml.SubElement(test, "failure", message=why, type=aspect.word).text = xml_text(values_text(aspect))
    elif result == "skipped":
        xml.SubElement(test, "skipped", message=why)
    else:
        xml.SubElement(test, "system-out").text = xml_text(f"{aspect.word} {values_text(aspect)}")


def as_junit(comparison, strict):
    """JUnit's XML as Jenkins and GitLab read it: a suite for each case, a test for each thing compared."""
    root, together = xml.Element("testsuites", name="minitaw compare"), []
    for c in comparison.cases:
        results = [result_of(aspect, strict) for aspect in c.aspects.values()]
        suite = xml.SubElement(root, "testsuite", name=xml_text(c.label), tests=str(len(results)), failures=str(results.count("failed")), errors="0",
                               skipped=str(results.count("skipped")), time=seconds_of(c.aspects["time"]))
        for aspect, result in zip(c.aspects.values(), results):
            add_test(suite, c, aspect, result)
        together += results
    root.attrib |= {"tests": str(len(together)), "failures": str(together.count("failed")), "errors": "0"}
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def shown(text):
    """What Markdown or HTML would read as more than text is shown as it is."""
    text = re.sub("[\x00-\x1f]", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|`*_\[\]\\~#@])", r"\\\1", text)


def markdown_word(aspect):
    """What is not as it was stands out."""
    return f"**{aspect.word}**" if aspect.outcome == "worse" else aspect.word or "-"


def markdown_row(c):
    time = c.aspects["time"]
    milliseconds = [f"{1000 * value:.4g}" if math.isfinite(value) else "-" for value in (time.base, time.new)]
    span = f"{time.ratio.estimate:.3f} ({time.ratio.low:.3f} to {time.ratio.high:.3f})" if time.ratio else "-"
    words = [markdown_word(c.worst(names)) for names in (["time"], MEMORY, BYTES, LOSSES, ["verdict"])]
    return "| " + " | ".join([shown(c.label), *milliseconds, span, *words]) + " |\n"


def as_markdown(comparison, base, new):
    """A heading, a table and the reasons, for the summary of a CI job or a note on a merge request."""
    text = f"### miniTaw: {shown(comparison.text())}\n\n"
    text += "| case | base, ms | new, ms | new / base | time | memory | bytes | loss | verdict |\n|---|---:|---:|---:|---|---|---|---|---|\n"
    text += "".join(map(markdown_row, comparison.cases)) + "\n"
    if len(comparison.cases) > 1:
        text += shown(mean_text(comparison)) + "\n\n"
    for c in comparison.cases:
        text += "".join(f"- {shown(c.label)}: {a.word}: {shown(a.reason)}\n" for a in c.aspects.values() if a.reason)
    facts = [f"base: {base}", f"new: {new}", rules_text(comparison.rules), *comparison.notes]
    return text + "\n<details><summary>What was compared</summary>\n\n" + "".join(f"- {shown(fact)}\n" for fact in facts) + "\n</details>\n"


def parse(words):
    parser = Parser(prog="compare", description="Has the second result become slower, larger or wrong against the first? Exit code 0: no, "
                                                "or not certainly; 1: yes; 2: nothing can be compared (docs/compare.md).")
    rules = Rules()
    parser.add_argument("files", metavar="FILE.h5", nargs="*", help="the base and the new result file")
    parser.add_argument("--base", metavar="FILE.h5", nargs="+", default=[], help="several files of the base: the i-th is paired with the i-th --new")
    parser.add_argument("--new", metavar="FILE.h5", nargs="+", default=[], help="as many of the new one, measured in turn with them")
    parser.add_argument("--threshold", type=float, default=rules.threshold, help="least relative difference of step times that matters (%(default)s)")
    parser.add_argument("--memory-threshold", type=float, default=rules.memory_threshold, help="the same of memory (%(default)s)")
    parser.add_argument("--confidence", type=float, default=rules.confidence, help="of the interval of the ratio of step times (%(default)s)")
    parser.add_argument("--quantile", type=float, default=rules.quantile, help="which sample stands for a run: 0 the fastest, 0.5 the median")
    parser.add_argument("--allow", metavar="NAME", action="append", default=[],
                        help="what may differ although it matters: dtype, recompute, attention, transport, seed, learning_rate, device, "
                             "processor, nodes, build_type, threads, links; may be repeated")
    parser.add_argument("--strict", action="store_true", help="AMBIGUOUS fails too")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--junit", metavar="FILE.xml", help="write a test report for CI")
    parser.add_argument("--markdown", metavar="FILE.md", help="write a table for the summary of a CI job")
    options = parser.parse_args(words)
    settle(options)
    require_known(options.allow)
    return options


def settle(options):
    """Either two files, or any number of each side; rules that make sense."""
    named = options.base or options.new
    if (named and (options.files or not options.base or not options.new)) or (not named and len(options.files) != 2):
        raise BadInput("compare takes two files, the base and the new one, or several of each: compare --base a1.h5 a2.h5 --new b1.h5 b2.h5")
    if not named:
        options.base, options.new = options.files[:1], options.files[1:]
    if not all(0 < share < 1e6 for share in (options.threshold, options.memory_threshold)):
        raise BadInput("--threshold and --memory-threshold are shares above 0, for example 0.05 for 5 %")
    if not 0.5 < options.confidence < 0.99999:
        raise BadInput("--confidence is a probability between 0.5 and 0.99999, for example 0.95")
    if not 0 <= options.quantile <= 0.5:
        raise BadInput("--quantile lies between 0 (the fastest sample) and 0.5 (the median)")


def name_of(paths):
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def main(words=None):
    options = parse(words)
    rules = Rules(options.threshold, options.memory_threshold, options.confidence, options.quantile, frozenset(options.allow))
    comparison = compare(read_side(options.base), read_side(options.new), rules)
    heading = name_of(options.base), name_of(options.new)
    if options.junit:
        write_file(options.junit, as_junit(comparison, options.strict))
    if options.markdown:
        write_file(options.markdown, as_markdown(comparison, *heading))
    put_out(as_json(comparison, *heading) if options.json else as_text(comparison, *heading))
    return int(comparison.outcome == "worse" or (options.strict and comparison.outcome == "ambiguous"))
