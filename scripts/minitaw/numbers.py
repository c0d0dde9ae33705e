# SPDX-License-Identifier: BSD-3-Clause
"""Numbers and units, as a reader wants them and as users write them. Needs no library."""

import math
import re
from numbers import Integral

NO_FIGURE = "–"
THIN_SPACE = "\u202f"  # sets thousands apart
MOST_PLACES = 12  # before and after the point; beyond them a figure has an exponent

BYTES = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B"))
SECONDS = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"))
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}  # of rates of links


def exists(value):
    """Returns whether there is a value: neither None nor NaN."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def plural(count, thing):
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def listed(items, most=8):
    """ "a, b, c and 2 more" """
    items = [str(item) for item in items]
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def cell_text(value):
    """A cell without its unit; as many digits as tell the number from any other."""
    return repr(float(value)).removesuffix(".0") if isinstance(value, float) else str(value)


def figure(value, digits=4):
    """So many significant digits, no exponent, thousands set apart: 12 407, 0.1652."""
    if not exists(value) or math.isinf(value):
        return NO_FIGURE
    if isinstance(value, Integral):
        return f"{value:,}".replace(",", THIN_SPACE)
    places = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    if not -MOST_PLACES < places < MOST_PLACES:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):,.{max(places, 0)}f}".replace(",", THIN_SPACE)


def percent(value, places=1):
    if not exists(value) or math.isinf(value):
        return NO_FIGURE
    return f"{100 * value:.{places}f} %"


def unit_among(units, largest):
    """Divisor and name so that the largest of some values is a handy number."""
    return next((unit for unit in units if largest >= unit[0]), units[-1])


def byte_unit(largest):
    return unit_among(BYTES, largest)


def time_unit(largest):
    return unit_among(SECONDS, largest)


def with_unit(value, unit):
    divisor, name = unit
    return f"{figure(value if divisor == 1 else value / divisor)} {name}"


def bytes_text(value):
    return with_unit(value, byte_unit(value))


def seconds_text(value):
    return with_unit(value, time_unit(value))


def count_text(tokens):
    """As decks write it: 8K is 8192."""
    for size, letter in ((1024**2, "M"), (1024, "K")):
        if tokens >= size and tokens % size == 0:
            return f"{tokens // size}{letter}"
    return f"{tokens}"


def size_value(value):
    """A size of a deck: 4096, or "4K"."""
    if isinstance(value, str) and value[-1:] in "KMG":
        return int(value[:-1]) * 1024 ** ("KMG".index(value[-1]) + 1)
    return value


def bits_per_second(text):
    """Of a rate of links as scripts/cluster writes it, "100mbit"; None of what is no rate."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{0,12})?)(kbit|mbit|gbit)", text)
    return float(match[1]) * BITS[match[2]] if match else None
