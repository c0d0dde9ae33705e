#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An MPI job on nodes that are namespaces of this machine, on one switch.

The process that runs this file waits for the machine room, the first process of a PID namespace
that dies with it, and passes signals in. The room makes the nodes, connects them and calls mpiexec.
Whatever ends it, and be it SIGKILL, takes every process of the room with it, and with the last
process the kernel removes namespaces, adapters and switch: nothing needs cleaning up, and the
machine's own network never sees any of it. mpiexec calls this file instead of ssh: `enter`.

    eth0 of a node  --veth--  port of the bridge `switch`:
        what the program sends between nodes, shaped at both ends
    admin of a node --veth--  port of the bridge `admin`:
        what mpiexec says to its proxies; the nodes cannot reach each other on it

With a latency a program takes the place of the bridge `switch`: cluster_switch.py.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.dont_write_bytecode = True
from cluster_options import MTU, links_text, parse  # noqa: E402
from cluster_switch import Switch  # noqa: E402
from minitaw.command import BAD_INPUT, BadInput, output_of  # noqa: E402

FRAME = 14  # bytes of an Ethernet header, which the kernel counts
MTU_ADMIN = 1500
SCHEDULER_TICK = 4e-3  # seconds that a timer may wait for a core
QUEUE = 1 << 30  # bytes: too long to drop anything
WITHOUT_CORE = 5e-3  # seconds for which windows last, there and back
LEAST_WINDOW, FIRST_WINDOW = 256 << 10, 131072  # bytes

# Namespaces

LIBC = ctypes.CDLL(None, use_errno=True)
# What to unshare: a node's are mounts, names, IPC and network.
NODE, NEWPID, NEWUSER = 0x4C020000, 0x20000000, 0x10000000
BIND, PRIVATE = 0x1000, 0x44000  # of mount; private: with all mounts below
DIE_WITH_PARENT, TIMER_SLACK = 1, 29  # of prctl


def system(name, *words):
    """A call of the kernel that Python lacks."""
    if getattr(LIBC, name)(*words):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind, flags=0):
    system("mount", source.encode(), target.encode(), kind.encode(), flags, None)


def leave_the_machine():
    """For the next child, which is the room. Root keeps its rights on files, if it may; anybody
    else becomes root of a user namespace."""
    kinds, user, group = NODE | NEWPID, os.getuid(), os.getgid()
    if LIBC.unshare(kinds) == 0:
        return
    if LIBC.unshare(kinds | NEWUSER):
        raise BadInput(
            "this machine does not let you create namespaces, of which the nodes are made: allow "
            "user namespaces, or be root"
        )
    pathlib.Path("/proc/self/setgroups").write_text("deny")
    pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def fork(work, *words):
    """A process that does this work, which yields once it is ready."""
    here, there = os.pipe()
    number = os.fork()
    if number == 0:
        try:
            for _ in work(*words):
                os.write(there, b"ready")
        except (BadInput, OSError) as error:
            os.write(there, str(error).encode())
        finally:
            os._exit(1)
    os.close(there)
    said = os.read(here, 4096).decode()
    if said != "ready":
        raise BadInput(f"cannot make the {work.__name__.replace('_', ' ')}: {said}")
    return number


def ip(*lines):
    output_of("ip", "-batch", "-", input="\n".join(lines))


def set_kernel(name, value):
    """A parameter of this network namespace; not every kernel has all of them."""
    with contextlib.suppress(OSError):
        pathlib.Path(f"/proc/sys/net/{name}").write_text(f"{value}")


def rate_of(number, options):
    return next((rate for nodes, rate in options.slow if number in nodes), options.rate)


def shape(adapter, rate):
    """The token bucket holds what may leave at once: two packets, or what passes while a timer
    waits for a core. Nothing is dropped: networks of this kind lose nothing; windows (below) keep
    the queue short.
    """
    burst = max(2 * (MTU + FRAME), int(rate / 8 * SCHEDULER_TICK))
    bucket = f"rate {rate:.0f}bit burst {burst} limit {QUEUE}"
    output_of("tc", *f"qdisc add dev {adapter} root handle 1: tbf {bucket}".split())


def delaying_switch(options, *names):
    system("prctl", TIMER_SLACK, 1000)  # timers to the microsecond
    yield from Switch(options, names).run()


# Nodes


def node(number, options):
    """Keeps the namespaces of a node. A host name, /dev/shm, System V memory, a list of adapters
    and a boot of its own: by these MPI and UCX tell nodes apart."""
    system("unshare", NODE)
    socket.sethostname(f"node{number}")
    mount("shm", "/dev/shm", "tmpfs")
    try:
        mount("sys", "/sys", "sysfs")
    except OSError:  # inside of a container: only the list of adapters
        mount("net", "/sys/class/net", "tmpfs")
        for adapter in ("lo", "eth0"):
            os.mkdir(f"/sys/class/net/{adapter}")
    pathlib.Path("/dev/shm/boot_id").write_text(f"{uuid.uuid4()}\n")
    mount("/dev/shm/boot_id", "/proc/sys/kernel/random/boot_id", "", BIND)
    set_kernel("ipv6/conf/default/disable_ipv6", 1)
    ip("link set lo up")
    for adapter, port, address, mtu in (
        ("admin", "admin", "10.78.0", MTU_ADMIN),
        ("eth0", "port", "10.77.0", MTU),
    ):
        peer = f"peer name {port}{number} mtu {mtu} netns 1"  # in the room
        ip(
            f"link add {adapter} mtu {mtu} type veth {peer}",
            f"address add {address}.{number + 2}/24 dev {adapter}",
            f"link set {adapter} up",
        )
    shape("eth0", rate_of(number, options))
    limit_windows(options)
    yield
    while True:
        signal.pause()


def limit_windows(options):
    """Enough for 10 ms, in which a rank may not get a core; more would only wait in the queues.
    Nothing is lost here, so that windows stay open once they are; BBR would take a lack of cores
    for a slower network."""
    seconds = 2 * options.latency + WITHOUT_CORE
    window = int(max(LEAST_WINDOW, 2 * options.rate / 8 * seconds))
    set_kernel("ipv4/tcp_rmem", f"4096 {min(window, FIRST_WINDOW)} {window}")
    set_kernel("ipv4/tcp_wmem", f"4096 {min(window, FIRST_WINDOW)} {4 * window}")
    set_kernel("ipv4/tcp_congestion_control", "cubic")
    set_kernel("ipv4/tcp_slow_start_after_idle", 0)


def enter(words):
    """Instead of ssh. mpiexec says: [-x] HOST COMMAND ..."""
    host, *command = words[words[0].startswith("-") :]
    process, cores = json.loads(os.environ.pop("MINITAW_NODES"))[host]
    os.sched_setaffinity(0, cores)
    namespaces = ["--net", "--uts", "--ipc", "--mount"]
    shell = ["sh", "-c", " ".join(command)]
    os.execvp("nsenter", ["nsenter", "--target", str(process), *namespaces, "--", *shell])


# The room


def connect(options):
    """Switches and nodes: the number of the process that keeps each node."""
    set_kernel("ipv6/conf/default/disable_ipv6", 1)
    ip(
        "link set lo up",
        "link add switch up type bridge",
        "link add admin up type bridge",
        "address add 10.78.0.1/24 dev admin",
    )
    nodes = [fork(node, number, options) for number in range(options.nodes)]
    for number in range(options.nodes):
        ip(
            f"link set port{number} {'' if options.switch else 'master switch'} up",
            f"link set admin{number} master admin up",
            f"link set admin{number} type bridge_slave isolated on",
        )
        shape(f"port{number}", rate_of(number, options))
    if options.switch:
        fork(delaying_switch, options, *(f"port{number}" for number in range(options.nodes)))
    return nodes


def cores_of(nodes, cores):
    """Cores of each node: as many for each, one for as many nodes each, or all for all."""
    if nodes % len(cores) == 0:
        return [[cores[number % len(cores)]] for number in range(nodes)]
    share, rest = divmod(len(cores), nodes)
    return [
        cores if rest else cores[number * share : (number + 1) * share] for number in range(nodes)
    ]


def start(options, nodes):
    """mpiexec. After what the user has set, ranks find the adapter that is shaped, and no other."""
    environment = {"UCX_TLS": "tcp,sm,self", "UCX_NET_DEVICES": "eth0", "FI_TCP_IFACE": "eth0"}
    environment |= dict(os.environ) | {"MINITAW_SHAPED_LINKS": links_text(options)}
    cores = sorted(os.sched_getaffinity(0))
    shares = cores_of(len(nodes), cores)
    # All for all: each node would take them for its own.
    if sum(map(len, shares)) > max(len(nodes), len(cores)) and not os.environ.get(
        "OMP_NUM_THREADS"
    ):
        threads = len(cores) // (len(nodes) * options.ranks_per_node)
        environment["OMP_NUM_THREADS"] = str(max(1, threads))
    entries = {f"node{number}": entry for number, entry in enumerate(zip(nodes, shares))}
    environment["MINITAW_NODES"] = json.dumps(entries)
    hosts = ",".join(f"{name}:{options.ranks_per_node}" for name in entries)
    launcher = ["-launcher", "ssh", "-launcher-exec", __file__, "-iface", "admin"]
    words = ["mpiexec", "-rmk", "user", "-hosts", hosts, *launcher, *options.program]
    return subprocess.Popen(words, env=environment)


def counted(number):
    """What the kernel counted on a node's adapter: Ethernet headers and all that follows, whoever
    sent it. Of the other end: eth0 may be cut."""
    (port,) = json.loads(output_of("ip", "-json", "-statistics", "link", "show", f"port{number}"))
    return {
        name: port["stats64"][way]["bytes"]
        for name, way in (("sent_bytes", "rx"), ("received_bytes", "tx"))
    }


def room(options):
    system("prctl", DIE_WITH_PARENT, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: job.send_signal(got) if job else os._exit(128 + got))
    job = None
    mount("none", "/", "", PRIVATE)
    mount("proc", "/proc", "proc")
    nodes = connect(options)
    job = start(options, nodes)
    if options.cut:
        threading.Timer(options.cut[1], ip, [f"link set port{options.cut[0][0]} down"]).start()
    code = job.wait()
    if options.counters:
        nodes = [counted(number) for number in range(options.nodes)]
        text = json.dumps({"nodes": nodes}, indent=2) + "\n"
        pathlib.Path(options.counters).write_text(text, encoding="utf-8")
    return code if code >= 0 else 128 - code


def has_programs():
    programs = ("ip", "tc", "nsenter", "mpiexec")
    return all(map(shutil.which, programs)) and "HYDRA" in output_of("mpiexec", "--version")


def run(options):
    if not has_programs():
        raise BadInput(
            "this needs ip, tc, nsenter and the mpiexec of MPICH, whose nodes can be entered "
            "without ssh; with MINITAW_ENV=debian they are there"
        )
    if not shutil.which(options.program[0]):
        raise BadInput(f"there is no program '{options.program[0]}' to run on the nodes")
    leave_the_machine()
    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to mpiexec too
    if (inside := os.fork()) == 0:
        return room(options)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: os.kill(inside, got))
    return os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1])


def main(words):
    if "MINITAW_NODES" in os.environ:
        return enter(words)
    try:
        return run(parse(words))
    except (BadInput, OSError) as sentence:
        print(f"minitaw: {sentence}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
