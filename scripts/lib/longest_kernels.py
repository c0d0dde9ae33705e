#!/usr/bin/env python3
"""The five kernels that took longest together, with Nsight Compute's counters, as a Markdown table.

Called with the file that `ncu --csv --page raw` wrote: one line per call of a kernel, the second line names the units. Of a kernel with
several calls the shares are those of the longest.
"""

import csv
import re
import sys

TIME = "gpu__time_duration.sum"
COLUMNS = {
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
REGISTERS = "launch__registers_per_thread"
SECONDS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0, "second": 1.0}


def number(text):
    """As ncu writes it: thousands may be set apart by commas; n/a where a counter is missing."""
    try:
        return float(text.replace(",", ""))
    except (ValueError, AttributeError):
        return None


def short(name):
    """Without template arguments that say nothing: kernels of Kokkos by the functor they run."""
    functor = re.search(r"minitaw::[\w:]*(?:\(anonymous namespace\)::)?\w+(?:<[\w, :]*>)?", name)
    return functor.group(0) if functor else re.split(r"[<(]", name.removeprefix("void "))[0]


def calls_of(lines):
    """The lines from the table's head on, as dictionaries: ncu and the program may have written others before."""
    at = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if at is None:
        sys.exit("minitaw: no table of Nsight Compute in that file")
    units, *calls = csv.DictReader(lines[at:])
    unit = SECONDS.get(units[TIME])
    if unit is None:
        sys.exit(f"minitaw: {TIME} is in '{units[TIME]}', which is no unit of time")
    return [(number(call[TIME]) * unit, call) for call in calls if number(call.get(TIME)) is not None]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        calls = calls_of(file.read().splitlines())
    kernels = {}
    for time, call in calls:
        kernels.setdefault(short(call["Kernel Name"]), []).append((time, call))
    together = sum(time for time, _ in calls)
    titles = ("kernel", "calls", "ms", "of all", *COLUMNS, "registers")
    print("| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    for name, found in sorted(kernels.items(), key=lambda item: -sum(time for time, _ in item[1]))[:5]:
        time, longest = sum(time for time, _ in found), max(found, key=lambda call: call[0])[1]
        shares = [number(longest.get(column)) for column in COLUMNS.values()]
        cells = [name, str(len(found)), f"{1e3 * time:.2f}", f"{100 * time / together:.0f} %",
                 *("-" if share is None else f"{share:.0f} %" for share in shares), longest.get(REGISTERS) or "-"]
        print("| " + " | ".join(cells) + " |")


main()
