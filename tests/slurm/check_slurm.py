# SPDX-License-Identifier: BSD-3-Clause
"""The job scripts of examples/slurm under a real Slurm: they run, a job that is stopped goes on in
the next, and ranks that do not find each other are told why. Called with the program, the
repository and a folder to write to."""

import json
import os
import pathlib
import re
import sys
import time

import programs
from cluster import Cluster, missing

PROGRAM, REPOSITORY, FOLDER = map(pathlib.Path, sys.argv[1:4])
SCRIPTS = REPOSITORY / "examples" / "slurm"
RESOURCES = ("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1")
ENVIRONMENT = {"MINITAW": str(PROGRAM), "OMP_NUM_THREADS": "1", "SLURM_MPI_TYPE": "pmi2"}

DECK = (
    'schedule = ["tawpipe", "fsdp", "1f1b"]\nranks = 4\ngroups = 2\nlayers = 8\nhidden = 32\n'
    "heads = 2\nvocab = 256\nseq = {seq}\n"
    "micro_batches = 8\nsteps = {steps}\nwarmup = 1\n"
)


def deck(name, seq, steps=4):
    path = FOLDER / f"{name}.toml"
    path.write_text(DECK.format(seq=seq, steps=steps), encoding="utf-8")
    return path


def program(name, text):
    """One that stands in for miniTaw."""
    (FOLDER / name).write_text(text, encoding="utf-8")
    (FOLDER / name).chmod(0o755)
    return FOLDER / name


def rows(file):
    """Cases in the file, as a user reads them at any moment; and what `show` thinks of them."""
    if not file.exists():
        return [], 1
    done = programs.call(PROGRAM, "show", file, "--json")
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout), done.returncode


def require_valid(file, cases):
    table, code = rows(file)
    assert len(table) == cases and code == 0, f"{file}: {len(table)} cases of {cases}, exit {code}"
    assert all(row["verdict"].startswith("VALID") for row in table), [
        row["verdict"] for row in table
    ]
    done = programs.call(PROGRAM, "show", file)
    assert "RESULT: VALID" in done.stdout, done.stdout


def wait_until(holds, seconds, what):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.1)


def submit(cluster, *words, **environment):
    """Number of the job that a script has been handed in as."""
    done = cluster.call(*words, cwd=FOLDER, env=ENVIRONMENT | environment)
    return re.search(r"\d+", done.stdout).group()


def batch(cluster, script, *arguments, options=(), **environment):
    """Hands a script in and waits; its exit code and what it has said."""
    number = submit(
        cluster,
        "sbatch",
        *RESOURCES,
        *options,
        f"--output={FOLDER}/job-%j.out",
        SCRIPTS / script,
        *arguments,
        **environment,
    )
    jobs = cluster.wait_for_jobs()
    return int(jobs[number]["ExitCode"].split(":")[0]), (FOLDER / f"job-{number}.out").read_text(
        encoding="utf-8"
    )


def check_cpu(cluster):
    """Ranks of a node are a group; the end of the job is known to every rank."""
    file = FOLDER / "cpu.h5"
    code, said = batch(cluster, "cpu.sbatch", deck("cpu", "[12, 20]"), file)
    assert code == 0 and "RESULT: VALID" in said, said
    require_valid(file, 6)
    assert all(row["groups"] == "2+2" for row in rows(file)[0])
    code, said = batch(cluster, "cpu.sbatch", FOLDER / "cpu.toml", file)
    assert code == 0 and "6 of 6 cases" in said, said


def check_mpiexec(cluster):
    """MPICH's own launcher finds the nodes of the job."""
    file = FOLDER / "mpiexec.h5"
    script = FOLDER / "mpiexec.sbatch"
    script.write_text(
        f"#!/bin/bash\nmpiexec {PROGRAM} run {deck('mpiexec', '[12]')} -o {file}\n",
        encoding="utf-8",
    )
    code, said = batch(cluster, script)
    assert code == 0 and "# rank 2: node 1, " in said, said
    require_valid(file, 3)


def check_lonely(cluster):
    """A PMI that the MPI does not speak: one sentence, and no file."""
    for kind in ("none", "pmix"):
        file = FOLDER / f"{kind}.h5"
        code, said = batch(cluster, "cpu.sbatch", deck("lonely", "[12]"), file, SLURM_MPI_TYPE=kind)
        ours = [line for line in said.splitlines() if line.startswith("minitaw: ")]
        assert code != 0 and not file.exists() and "Exited with exit code 2" in said, said
        assert len(ours) == 1 and "4 ranks" in ours[0] and "srun --mpi=list" in ours[0], said


def check_gpu(cluster):
    """One rank for each GPU; each sees all of its node."""
    stand_in = program(
        "stand-in",
        '#!/bin/bash\necho "$SLURM_PROCID $SLURM_NODEID $CUDA_VISIBLE_DEVICES '
        '$(($SLURM_JOB_END_TIME - $(date +%s)))"\n',
    )
    code, said = batch(
        cluster,
        "gpu.sbatch",
        deck("gpu", "[12]"),
        FOLDER / "gpu.h5",
        MINITAW=str(stand_in),
        options=("--gpus-per-node=2", "--time=7"),
    )
    lines = sorted(line.split() for line in said.splitlines())
    assert code == 0, said
    assert [line[:3] for line in lines] == [
        ["0", "0", "0,1"],
        ["1", "0", "0,1"],
        ["2", "1", "0,1"],
        ["3", "1", "0,1"],
    ], said
    assert all(
        400 < int(line[3]) <= 420 for line in lines
    ), f"the end of the job, seen by each rank: {said}"


def check_screen(cluster):
    """The parts of all nodes are measured; the job ends with the exit code of the verdict."""
    options = ("--gpus-per-node=0",)
    words = ("--seconds=0.02", "--rounds=2")
    code, said = batch(cluster, "screen.sbatch", *words, options=options)
    verdict = re.search(r"^VERDICT: (\w+)", said, re.MULTILINE).group(1)
    assert code == {"CLEAN": 0, "FOUND": 1, "INCONCLUSIVE": 3}[verdict], said
    assert "  rate between nodes " in said, said


def check_dependency(cluster):
    """A job is asked to stop; the same command, which waits for that, ends with every case done."""
    file, path = FOLDER / "next.h5", deck("next", list(range(20, 52, 4)))

    def hand_in(*options):
        output = f"--output={FOLDER}/next-%j.out"
        command = ["sbatch", *RESOURCES, *options, output, SCRIPTS / "cpu.sbatch", path, file]
        return submit(cluster, *command)

    first = hand_in()
    second = hand_in(f"--dependency=afternotok:{first}")
    wait_until(lambda: len(rows(file)[0]) >= 2, 90, "two cases")
    cluster.call("scancel", "--signal=TERM", f"{first}.0")
    jobs = cluster.wait_for_jobs()
    require_valid(file, 24)
    codes = [int(jobs[number]["ExitCode"].split(":")[0]) for number in (first, second)]
    assert codes == [1, 0], codes


def check_binding(_):
    """Ranks have cores of their own, in order."""
    stand_in = program(
        "where", "#!/bin/bash\necho $SLURM_PROCID on $(taskset -cp $$ | sed 's/.*: //')\n"
    )
    with Cluster(FOLDER / "one-node", nodes=1, cores=2, task="affinity") as cluster:
        code, said = batch(
            cluster,
            "cpu.sbatch",
            deck("bound", "[12]"),
            FOLDER / "bound.h5",
            MINITAW=str(stand_in),
            options=("--nodes=1",),
        )
    assert code == 0 and sorted(said.splitlines()) == ["0 on 0", "1 on 1"], said


if missing():
    sys.exit(f"not found on this machine: {', '.join(missing())}")
FOLDER.mkdir(parents=True, exist_ok=True)
for old in filter(pathlib.Path.is_file, FOLDER.glob("*.*")):
    old.unlink()
os.environ.pop("SLURM_CONF", None)
with Cluster(FOLDER / "cluster", nodes=2, cores=4, gpus=2, kill_wait=2) as own:
    checks = [
        check_cpu,
        check_mpiexec,
        check_lonely,
        check_gpu,
        check_screen,
        check_dependency,
    ]
    for check in checks + [check_binding] * (os.cpu_count() >= 2):
        began = time.monotonic()
        check(own)
        print(f"{check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
