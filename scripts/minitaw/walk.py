# SPDX-License-Identifier: BSD-3-Clause
"""What lies in an HDF5 file that may come from anybody: every object is looked at before a value
is read. Refuses what leads out of the file, loads code, or claims more than the file holds."""

from dataclasses import dataclass

from h5py import h5d, h5g, h5l, h5o, h5s, h5t

DEEPEST = 4  # groups in one another
LEAST_BYTES = 40  # that an object takes in a file, with its link
LARGEST_NUMBER = 8  # bytes
LONGEST_PART = 80  # characters of a name in a sentence


class Refused(Exception):
    """A part of the file, and what is wrong with it."""


def refuse(part, what):
    name = part if len(part) <= LONGEST_PART else part[:LONGEST_PART] + "..."
    raise Refused(f"/{name.encode('unicode_escape').decode()} {what}")


@dataclass
class Extent:
    kind: str  # "integer", "real", "text"; "group"
    shape: tuple  # of a group: how many members it has


def kind_of(stored):
    """The kind of a type of HDF5; None of what no result has."""
    if stored.get_class() == h5t.STRING:
        return "text" if stored.is_variable_str() else None
    kinds = {h5t.INTEGER: "integer", h5t.FLOAT: "real"}
    return kinds.get(stored.get_class()) if stored.get_size() <= LARGEST_NUMBER else None


class Walk:
    """Looks at all objects of a file, one after the other. Reads no value."""

    def __init__(self, file, size):
        self.size = size
        self.claimed = 0  # bytes
        self.found = {}  # path: Extent
        self.visit(h5g.open(file.id, b"/"), "", 0)

    def visit(self, group, path, depth):
        if depth > DEEPEST:
            refuse(path, "lies deeper than any part of a result")
        for name in group:
            at = f"{path}/{name.decode(errors='replace')}".lstrip("/")
            if group.links.get_info(name).type != h5l.TYPE_HARD:
                refuse(at, "is a link to another place")
            self.visit_object(h5o.open(group, name), at, depth)

    def visit_object(self, opened, at, depth):
        if h5o.get_info(opened).rc != 1:
            refuse(at, "is linked from several places")
        if len(self.found) >= self.size // LEAST_BYTES:
            refuse(at, "is one of more objects than the file has room for")
        if isinstance(opened, h5g.GroupID):
            self.found[at] = Extent("group", (len(opened),))
            self.visit(opened, at, depth + 1)
        elif isinstance(opened, h5d.DatasetID):
            self.found[at] = self.extent_of(opened, at)
        else:
            refuse(at, "is neither a group nor a dataset")

    def extent_of(self, dataset, at):
        options = dataset.get_create_plist()
        if options.get_external_count():
            refuse(at, "has its values in another file")
        if options.get_layout() == h5d.VIRTUAL:
            refuse(at, "has its values in other datasets")
        if options.get_nfilters():
            refuse(at, "is compressed or filtered")
        stored, space = dataset.get_type(), dataset.get_space()
        kind = kind_of(stored)
        if kind is None or space.get_simple_extent_type() == h5s.NULL:
            refuse(at, "holds neither numbers nor texts")
        values = space.get_simple_extent_npoints()
        claimed = values * stored.get_size()
        self.claimed += claimed
        if claimed > dataset.get_storage_size() or self.claimed > self.size:
            refuse(at, f"claims {values} values, more than the file holds")
        return Extent(kind, space.get_simple_extent_dims())
