# SPDX-License-Identifier: BSD-3-Clause
"""A Slurm of one's own, in a folder: controller, nodes and keys of a cluster that exists while a
test runs. All daemons run as the caller on this machine, on free ports; nothing outside the folder
is written. Each node is a slurmd with a name and a port of its own. Cores are counted, not bound
(unless task="affinity"), so a small machine can play a cluster.

    with Cluster(folder, nodes=3, cores=4) as cluster:
        cluster.call("sbatch", "job.sh")
"""

import contextlib
import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import time

CONFIGURATION = """ClusterName=minitaw
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/{task}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=100000,bf_interval=1
ReturnToService=2
KillWait={kill_wait}
OverTimeLimit=0
MpiDefault=pmi2
{gres}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def find(daemon):
    """Debian calls them slurmd-wlm and so on, and leaves the plain name to its alternatives."""
    path = os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin"
    return shutil.which(daemon, path=path) or shutil.which(daemon + "-wlm", path=path)


def missing():
    """Programs without which there is no cluster."""
    found = {
        name: find(name)
        for name in ("slurmctld", "slurmd", "slurmstepd", "munged", "sbatch", "srun")
    }
    return [name for name, path in found.items() if path is None]


def free_ports(count):
    with contextlib.ExitStack() as opened:
        sockets = [
            opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


def end(daemon):
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


class Cluster(contextlib.ExitStack):
    """Nodes n1, n2, ... of so many cores each; up to 4 `gpus` are stand-ins. At the end its daemons
    end, the last one first."""

    def __init__(self, folder, nodes, cores, gpus=0, kill_wait=5, task="none"):
        super().__init__()
        self.folder = pathlib.Path(folder).resolve()
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.cores, self.gpus, self.kill_wait, self.task = cores, gpus, kill_wait, task
        self.environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self):
        with contextlib.ExitStack() as undo:  # what has begun when the rest fails
            undo.push(self)
            self._start()
            undo.pop_all()
        return self

    def call(self, *words, check=True, timeout=120, **options):
        """Runs a command against the cluster; returns what it said."""
        done = subprocess.run(
            [str(word) for word in words],
            env=self.environment | options.pop("env", {}),
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
            **options,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{words}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def jobs(self):
        """State of each job that the controller remembers, by number."""
        lines = self.call("scontrol", "show", "jobs", "--oneliner").stdout.splitlines()
        fields = [
            dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines
        ]
        return {each["JobId"]: each for each in fields if "JobId" in each}

    def wait_for_jobs(self, seconds=300):
        """Until no job runs or waits; returns all jobs."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.call("squeue", "--noheader").stdout.strip():
                return self.jobs()
            time.sleep(0.5)
        raise TimeoutError(f"jobs still there after {seconds} s:\n{self.call('squeue').stdout}")

    def _start(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("bin", "state"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        self._configure()
        self._start_munge()
        # The daemons look at the name that they are called by.
        for name in ("slurmctld", "slurmd", "slurmstepd"):
            (self.folder / "bin" / name).symlink_to(find(name))
        self._daemon("slurmctld", "-D", "-i")
        for name in self.names:
            self._daemon("slurmd", "-D", "-N", name, "-d", self.folder / "bin" / "slurmstepd")
        self.callback(self._end_jobs)
        idle = ["idle", str(len(self.names))]
        self._wait_until(
            lambda: self.call("sinfo", "--noheader", "--format=%T %D", check=False).stdout.split()
            == idle,
            60,
            "the nodes do not come up",
        )

    def _configure(self):
        ports = free_ports(1 + len(self.names))
        host = socket.gethostname().split(".")[0]
        gres = f" Gres=gpu:{self.gpus}" if self.gpus else ""
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self.cores} RealMemory=4000{gres}"
            for name, port in zip(self.names, ports[1:])
        ]
        text = CONFIGURATION.format(
            host=host,
            port=ports[0],
            user=getpass.getuser(),
            folder=self.folder,
            nodes="\n".join(nodes),
            task=self.task,
            kill_wait=self.kill_wait,
            gres="GresTypes=gpu" if self.gpus else "",
        )
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n", encoding="utf-8")
        # Slurm wants character devices; which ones does not matter, as nothing here fences them.
        for number, device in zip(range(self.gpus), ("null", "zero", "full", "random")):
            (self.folder / f"gpu{number}").symlink_to(f"/dev/{device}")
        if self.gpus:
            (self.folder / "gres.conf").write_text(
                f"Name=gpu File={self.folder}/gpu[0-{self.gpus - 1}] Flags=nvidia_gpu_env\n",
                encoding="utf-8",
            )

    def _start_munge(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.folder}/munge.socket",
            f"--pid-file={self.folder}/munge.pid",
            f"--seed-file={self.folder}/munge.seed",
        )
        self._wait_until(
            lambda: (self.folder / "munge.socket").exists(), 60, "munged does not start"
        )

    def _daemon(self, name, *words):
        linked = self.folder / "bin" / name
        with open(self.folder / f"{name}.said", "ab") as log:
            daemon = subprocess.Popen(
                [str(linked if linked.exists() else find(name)), *map(str, words)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.callback(end, daemon)

    def _wait_until(self, holds, seconds, otherwise):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"{otherwise}; see the logs in {self.folder}")
            time.sleep(0.1)

    def _end_jobs(self):
        """Steps are processes of their own, which outlive the daemons."""
        self.call("scancel", "--signal=KILL", "--full", f"--user={getpass.getuser()}", check=False)
        self.call("scancel", f"--user={getpass.getuser()}", check=False)
        with contextlib.suppress(TimeoutError, RuntimeError):
            self.wait_for_jobs(30)
