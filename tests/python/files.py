# SPDX-License-Identifier: BSD-3-Clause
"""Result files for tests, made of a sample: other settings, statuses and texts, more cases."""

import pathlib

import h5py
import support  # noqa: F401  finds the package
from minitaw import record

def read(name):
    return record.open_result(name)

def seal(path):
    """Puts the seal in front of a file that h5py has written."""
    path = pathlib.Path(path)
    image = path.read_bytes()
    path.write_bytes(record.seal_of(record.SCHEMA, image) + image)

def put(group, name, value):
    """Replaces a dataset; its attributes stay."""
    attributes = dict(group[name].attrs)
    text = h5py.check_string_dtype(group[name].dtype)
    del group[name]
    group.create_dataset(name, data=value, dtype=h5py.string_dtype() if text else None)
    group[name].attrs.update(attributes)

def add_case(source, file, number, base, summary, datasets):
    source.copy(f"cases/{base:04}", file["cases"], f"{number:04}")
    case = file[f"cases/{number:04}"]
    for name, value in summary.items():
        place = name if name in case else f"settings/{name}"
        if isinstance(case.get(place), h5py.Dataset):
            put(case, place, value)
    for name, value in datasets.items():
        put(case, name, value)

def verdict_of(verdicts):
    """What a file says of all its cases: VALID, or why not, without the words of a case."""
    bad, doubtful = [v for v in verdicts if not v.startswith("VALID")], [v for v in verdicts if v.startswith("VALID (")]
    if not verdicts:
        return "INVALID: no case was run"
    return f"INVALID: {len(bad)} of {len(verdicts)} cases" if bad else f"VALID ({len(doubtful)} of {len(verdicts)} cases)" if doubtful else "VALID"

def make(sample, target, cases, provenance=None):
    """Writes `target`. cases: [(case of the sample, {column of the summary: value}, {dataset of the case: value})]."""
    with read(sample) as source, h5py.File(target, "w") as file:
        file.attrs.update(dict(source.attrs))
        source.copy("provenance", file)
        for name, value in (provenance or {}).items():
            put(file["provenance"], name, value)
        file.create_group("cases")
        for number, (base, summary, datasets) in enumerate(cases):
            add_case(source, file, number, base, {"case": number} | summary, datasets)
        group = file.create_group("summary")
        group.attrs.update(dict(source["summary"].attrs))
        was = source["summary/verdict"].asstr()[:]
        group.attrs["verdict"] = verdict_of([summary.get("verdict", was[base]) for base, summary, _ in cases])
        for name, column in source["summary"].items():
            text = h5py.check_string_dtype(column.dtype)
            values = column.asstr()[:] if text else column[:]
            rows = [number if name == "case" else summary.get(name, values[base]) for number, (base, summary, _) in enumerate(cases)]
            group.create_dataset(name, data=rows, shape=(len(rows),), dtype=h5py.string_dtype() if text else column.dtype)
            group[name].attrs.update(dict(column.attrs))
    seal(target)
    return str(target)
