# SPDX-License-Identifier: BSD-3-Clause
"""Result files for tests, made of a sample: other settings, statuses and texts, more cases."""

import pathlib

import h5py
import numpy
import support  # noqa: F401  finds the package
from minitaw import layout, record, seal


def read(name):
    return record.open_result(name)


def write_seal(path):
    """Puts the seal in front of a file that h5py has written."""
    path = pathlib.Path(path)
    image = path.read_bytes()
    path.write_bytes(seal.seal_of(seal.SCHEMA, image) + image)


def put(group, name, value):
    """Replaces a dataset; its attributes stay."""
    attributes = dict(group[name].attrs)
    dtype, axes = group[name].dtype, group[name].ndim
    del group[name]
    nothing = {"shape": (0,) * axes} if axes and numpy.size(value) == 0 else {"data": value}
    group.create_dataset(
        name, **nothing, dtype=h5py.string_dtype() if h5py.check_string_dtype(dtype) else dtype
    )
    group[name].attrs.update(attributes)


def fitted(values, shape):
    """The values, repeated or cut to a shape; none stay none."""
    if 0 in values.shape or values.shape == shape:
        return values
    return values[
        numpy.ix_(*(numpy.arange(length) % old for length, old in zip(shape, values.shape)))
    ]


def fit_case(case, ranks, given):
    """Gives all datasets, but those that a test has `given`, the shapes that ranks, steps and
    repetitions ask for."""
    sizes = {
        "P": ranks,
        "K": len(case["repetition"]),
        "R": len(case["position"]),
    }
    for name, entry in layout.layout().of_case.items():
        if name in case and entry.axes and not name.startswith("timeline/") and name not in given:
            text = h5py.check_string_dtype(case[name].dtype)
            values = case[name].asstr()[()] if text else case[name][()]
            shape = tuple(int(sizes.get(axis, old)) for axis, old in zip(entry.axes, values.shape))
            if shape != values.shape and values.size:
                put(case, name, fitted(values, shape))


def add_case(source, file, number, base, summary, datasets):
    source.copy(f"cases/{base:04}", file["cases"], f"{number:04}")
    case = file[f"cases/{number:04}"]
    if "bytes/counted" in datasets:
        datasets = {"bytes/planned": datasets["bytes/counted"]} | datasets
    for name, value in datasets.items():
        put(case, name, value)
    fit_case(case, summary.get("ranks", source["summary/ranks"][base]), datasets)


def completed(source, base, number, summary, datasets):
    """With the settings and figures that follow from those that a test gives."""
    was = {name: source[f"summary/{name}"][base] for name in ("ranks", "repeats")}
    summary = {"case": number} | summary
    if summary.get("ranks", was["ranks"]) != was["ranks"]:
        summary = {"groups": str(summary["ranks"])} | summary
    if "position" in datasets:
        summary = {"repeats": min(was["repeats"], len(datasets["position"]))} | summary
    if "seconds" in datasets and numpy.size(datasets["seconds"]):
        summary = {
            "median_s": float(numpy.median(numpy.max(datasets["seconds"], axis=1)))
        } | summary
    return summary


def fit_sessions(first, ranks, given):
    """Gives every session so many ranks at least."""
    for session in (first, *first["resumed"].values()):
        for name, entry in layout.layout().of_session.items():
            if (
                name in session
                and entry.axes == ("J",)
                and not (session is first and name in given)
                and 0 < len(session[name]) < ranks
            ):
                values = session[name].asstr()[:] if entry.kind == "text" else session[name][:]
                put(session, name, fitted(values, (ranks,)))


def verdict_of(verdicts):
    """What a file says of all its cases: VALID, or why not, without the words of a case."""
    bad, doubtful = [v for v in verdicts if not v.startswith("VALID")], [
        v for v in verdicts if v.startswith("VALID (")
    ]
    if not verdicts:
        return "INVALID: no case was run"
    return (
        f"INVALID: {len(bad)} of {len(verdicts)} cases"
        if bad
        else f"VALID ({len(doubtful)} of {len(verdicts)} cases)" if doubtful else "VALID"
    )


def make(sample, target, cases, provenance=None):
    """Writes `target`. cases: [(case of the sample, {column of the summary: value}, {dataset of the
    case: value})]."""
    with read(sample) as source, h5py.File(target, "w") as file:
        file.attrs.update(dict(source.attrs))
        source.copy("provenance", file)
        for name, value in (provenance or {}).items():
            put(file["provenance"], name, value)
        file.create_group("cases")
        cases = [
            (base, completed(source, base, number, summary, datasets), datasets)
            for number, (base, summary, datasets) in enumerate(cases)
        ]
        for number, (base, summary, datasets) in enumerate(cases):
            add_case(source, file, number, base, summary, datasets)
        fit_sessions(
            file["provenance"],
            max([summary.get("ranks", 0) for _, summary, _ in cases], default=0),
            provenance or {},
        )
        group = file.create_group("summary")
        group.attrs.update(source["summary"].attrs)
        was = source["summary/verdict"].asstr()[:]
        group.attrs["verdict"] = verdict_of(
            [summary.get("verdict", was[base]) for base, summary, _ in cases]
        )
        for name, column in source["summary"].items():
            text = h5py.check_string_dtype(column.dtype)
            values = column.asstr()[:] if text else column[:]
            rows = [
                number if name == "case" else summary.get(name, values[base])
                for number, (base, summary, _) in enumerate(cases)
            ]
            group.create_dataset(
                name,
                data=rows,
                shape=(len(rows),),
                maxshape=(None,),  # `run` goes on with it
                dtype=h5py.string_dtype() if text else column.dtype,
            )
            group[name].attrs.update(dict(column.attrs))
    write_seal(target)
    return str(target)
