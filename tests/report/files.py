"""Result files for tests, made of a sample: other settings, statuses and texts, more cases, older schemas."""

import pathlib
import re

import h5py
import minitaw_file


def read(name):
    return minitaw_file.open_checked(str(name))


def seal(path, schema):
    """Puts the seal in front of a file that h5py has written."""
    path = pathlib.Path(path)
    image = path.read_bytes()
    path.write_bytes((minitaw_file.seal_of(schema, image) if schema >= minitaw_file.FIRST_SEALED else b"") + image)


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
        if place in case:
            put(case, place, value)
    for name, value in datasets.items():
        put(case, name, value)


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
        for name, column in source["summary"].items():
            text = h5py.check_string_dtype(column.dtype)
            values = column.asstr()[:] if text else column[:]
            rows = [number if name == "case" else summary.get(name, values[base]) for number, (base, summary, _) in enumerate(cases)]
            group.create_dataset(name, data=rows, shape=(len(rows),), dtype=h5py.string_dtype() if text else column.dtype)
            group[name].attrs.update(dict(column.attrs))
        schema = int(file.attrs["schema"])
    seal(target, schema)
    return str(target)


def newer_datasets(page, schema):
    """Paths of docs/results.md that a file of this schema does not have, as patterns."""
    for line in open(page, encoding="utf-8"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        since = re.search(r"\(schema (\d)\b", cells[-1])
        if cells[0].startswith("`/") and since and int(since[1]) > schema:
            yield cells[0].strip("`").replace("NNNN", "*")


def older(sample, target, schema, page):
    """The sample as a program of that schema would have left it, as far as the page says which datasets came later."""
    with read(sample) as source, h5py.File(target, "w") as file:
        for name in source:
            source.copy(name, file)
        file.attrs.update(dict(source.attrs))
        file.attrs["schema"] = schema
        for pattern in newer_datasets(page, schema):
            for case in file["cases"]:
                path = pattern.replace("*", case)
                if path in file:
                    del file[path]
        gone = [name for case in file["cases"] for name in (f"cases/{case}/timeline",) if schema < 3 and name in file]
        for name in gone:
            del file[name]
    seal(target, schema)
    return str(target)
