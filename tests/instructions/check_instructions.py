# SPDX-License-Identifier: BSD-3-Clause
"""Instructions of the host kernels against the committed baseline: no clock, so no noise. Called by
ctest and, with --update, by the target instructions_baseline. Exit code 0: as in the baseline, 1:
not so, 77: the baseline does not apply here.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOLERANCE = (
    0.02  # what the libraries around the kernels may add; the counts themselves repeat exactly
)
NOT_APPLICABLE = 77


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("baseline", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, help="for callgrind's files")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--flags", required=True)
    parser.add_argument(
        "--kokkos", required=True, help="its version: its loops are compiled into the kernels"
    )
    parser.add_argument("--build", help="folder of the build, for the advice")
    parser.add_argument(
        "--update", action="store_true", help="write the baseline instead of comparing with it"
    )
    return parser.parse_args()


def stop(sentence, code):
    print(sentence)
    sys.exit(code)


def need_processor():
    """The instructions that are compiled have to be there; valgrind passes them through."""
    if " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        stop(
            "skipped: this processor has no AVX2, for which the kernels are compiled",
            NOT_APPLICABLE,
        )


def counted(program, folder):
    """Runs the program under callgrind: instructions of each kernel, and the file that says where
    they went."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        "--collect-atstart=no",
        f"--callgrind-out-file={folder / 'callgrind.out'}",
        program,
    ]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OMP_PROC_BIND": "false",
        "LD_BIND_NOW": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        stop(
            f"{program} failed under valgrind (exit code {done.returncode}):\n"
            f"{done.stdout}{done.stderr}",
            1,
        )
    counts, files = {}, {}
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8")
        if name := re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE):
            counts[name[1]] = int(re.search(r"^totals: (\d+)$", text, re.MULTILINE)[1])
            files[name[1]] = file
    if not counts or 0 in counts.values():
        stop(f"nothing was counted: {done.stdout}{done.stderr}", 1)
    return counts, files


def differences(baseline, counts, files):
    """A line for each kernel that is not as in the baseline."""
    for name in sorted(baseline.keys() | counts.keys()):
        before, now = baseline.get(name), counts.get(name)
        if before is None or now is None:
            where = "not in" if before is None else "not counted, but in"
            yield f"{name}: {where} the baseline"
        elif abs(now - before) > TOLERANCE * before:
            change = f"{100 * (now / before - 1):+.1f} %"
            counts_text = f"{before} -> {now} instructions ({change})"
            yield f"{name}: {counts_text}; callgrind_annotate {files[name]}"


def main():
    options = arguments()
    need_processor()
    setting = {name: getattr(options, name) for name in ("compiler", "flags", "kokkos")}
    if options.update:
        counts, _ = counted(options.program, options.folder)
        options.baseline.write_text(
            json.dumps(setting | {"instructions": dict(sorted(counts.items()))}, indent=2) + "\n",
            encoding="utf-8",
        )
        stop(f"wrote {len(counts)} counts to {options.baseline}", 0)

    baseline = json.loads(options.baseline.read_text(encoding="utf-8"))
    advice = f"cmake --build {options.build} --target instructions_baseline"
    for name, here in setting.items():
        if baseline[name] != here:
            sentence = (
                f"the baseline does not apply: its {name} is '{baseline[name]}', here it is "
                f"'{here}'"
            )
            if name == "flags":  # the repository's own, the same on every machine
                stop(f"{sentence}; renew it: {advice}", 1)
            stop(f"skipped: {sentence}; scripts/env brings what it was made with", NOT_APPLICABLE)
    counts, files = counted(options.program, options.folder)
    if found := list(differences(baseline["instructions"], counts, files)):
        print(*found, sep="\n")
        stop(
            f"{len(found)} of {len(counts)} kernels differ by more than {TOLERANCE:.0%} from "
            f"{options.baseline}. "
            f"If that is meant, renew it: {advice}",
            1,
        )
    print(
        f"{len(counts)} kernels take as many instructions as in the baseline, within "
        f"{TOLERANCE:.0%}"
    )


if __name__ == "__main__":
    main()
