"""Numbers and settings as a reader wants them."""

import math

THIN = "\u202f"  # between thousands; does not break


def exists(value):
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def figure(value, digits=4):
    """So many significant digits, no exponent, thousands set apart: 12 407, 0.1652."""
    if not exists(value) or math.isinf(value):
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", THIN)
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if not -12 < places < 12:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):,.{max(places, 0)}f}".replace(",", THIN)


def percent(value, places=1):
    return f"{100 * value:.{places}f} %" if exists(value) else "–"


def error(value):
    return f"{value:.0e}" if exists(value) else "–"


def byte_unit(largest):
    """Divisor and name so that the largest of some values is a handy number."""
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if largest >= 1024**power:
            return 1024**power, name
    return 1, "B"


def bytes_text(value):
    if not exists(value):
        return "–"
    divisor, unit = byte_unit(value)
    return f"{figure(value / divisor)} {unit}"


def time_unit(largest):
    for divisor, name in ((1, "s"), (1e-3, "ms")):
        if largest >= divisor:
            return divisor, name
    return 1e-6, "µs"


def seconds_text(value):
    if not exists(value):
        return "–"
    divisor, unit = time_unit(abs(value))
    return f"{figure(value / divisor)} {unit}"


def count_text(tokens):
    """As decks write it: 8K is 8192."""
    for divisor, letter in ((1024**2, "M"), (1024, "K")):
        if tokens >= divisor and tokens % divisor == 0:
            return f"{tokens // divisor}{letter}"
    return f"{tokens}"


def plural(count, thing):
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def shorten(text, width):
    """Cut in the middle: both ends of a schedule's name tell it from others."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head):]


def listed(items, most=8):
    """Comma-separated, the rest counted."""
    items = [str(item) for item in items]
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def tokens_text_of(case):
    return f"{count_text(case['seq'])} tokens"
