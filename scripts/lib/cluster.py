#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An MPI job on nodes that are namespaces of this machine, behind one switch.

The process that runs this file waits for the machine room, the first process of a PID namespace
that dies with it, and passes signals in. The room makes the nodes, connects them and calls mpiexec.
Whatever ends it, and be it SIGKILL, takes every process of the room with it, and with the last
process the kernel removes namespaces, adapters and switch: nothing needs cleaning up, and the
machine's own network never sees any of it. mpiexec calls this file in place of ssh: `enter`.

    eth0 of a node  --veth--  port of the bridge `switch`: what the program sends between nodes, shaped at both ends
    admin of a node --veth--  port of the bridge `admin`:  what mpiexec says to its proxies; the nodes cannot reach each other on it

With a latency a program takes the place of the bridge `switch`: `delaying_switch`.
"""

import argparse
import collections
import contextlib
import ctypes
import heapq
import itertools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.dont_write_bytecode = True
from minitaw.command import BAD_INPUT, BadInput, Parser, output_of  # noqa: E402

MTU, FRAME = (
    9000,
    14,
)  # bytes of a packet (a jumbo frame), and of an Ethernet header, which the kernel counts
RATES, TIMES = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3}, {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def quantity(units, kind, example):
    def parse(text):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)([a-z]+)", text.lower())
        if not match or match[2] not in units or float(match[1]) == 0:
            raise argparse.ArgumentTypeError(
                f"'{text}' is no {kind}: write a number with {', '.join(units)}, such as {example}"
            )
        return float(match[1]) * units[match[2]]

    return parse


def at_node(separator, value, example):
    """NODE, or two nodes as A-B, and a value behind the separator: a tuple of the nodes, and the
    value."""

    def parse(text):
        match = re.fullmatch(rf"([0-9]+)(?:-([0-9]+))?{separator}(.+)", text)
        if not match or (match[2] is not None) != ("-" in example):
            raise argparse.ArgumentTypeError(f"'{text}' is not of the form {example}")
        return tuple(int(node) for node in match.groups()[:2] if node is not None), value(match[3])

    return parse


def parse(words):
    parser = Parser(
        prog="scripts/cluster",
        usage="scripts/cluster --nodes N --ranks-per-node R --rate RATE [OPTION ...] -- PROGRAM [ARGUMENT ...]",
        description="Runs an MPI program on nodes that are namespaces of this machine, each with one adapter of this rate.",
    )
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--ranks-per-node", type=int, required=True)
    parser.add_argument(
        "--rate",
        type=quantity(RATES, "rate", "100mbit"),
        required=True,
        help="of each node's adapter, each direction: 100mbit, 1gbit",
    )
    parser.add_argument(
        "--latency",
        type=quantity(TIMES, "time", "0.2ms"),
        default=0.0,
        help="added to the way from node to node: 50us, 0.2ms (default: none)",
    )
    parser.add_argument(
        "--cut",
        type=at_node("@", float, "1@20"),
        metavar="NODE@SECONDS",
        help="takes the adapter of a node down so long after the start",
    )
    parser.add_argument(
        "--slow",
        type=at_node("=", quantity(RATES, "rate", "30mbit"), "1=30mbit"),
        action="append",
        default=[],
        metavar="NODE=RATE",
        help="the adapter of a node has another rate; may be given for several nodes",
    )
    parser.add_argument(
        "--slow-pair",
        type=at_node("=", quantity(RATES, "rate", "30mbit"), "0-1=30mbit"),
        metavar="A-B=RATE",
        help="what passes between two nodes, in each direction, has another rate",
    )
    parser.add_argument(
        "--delay",
        type=at_node("=", quantity(TIMES, "time", "5ms"), "1=5ms"),
        metavar="NODE=TIME",
        help="more latency, on all ways to and from a node",
    )
    parser.add_argument(
        "--counters",
        nargs="?",
        const="-",
        metavar="FILE.json",
        help="says at the end what the kernel counted on each node's adapter, on standard error or as JSON in a file",
    )
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    options.program = words[at + 1 :]
    if not options.program:
        raise BadInput(
            "no program: write -- and the program after the options (scripts/cluster --help lists all options)"
        )
    if not (1 <= options.nodes <= 200 and 1 <= options.ranks_per_node <= 200):
        raise BadInput("--nodes and --ranks-per-node are numbers from 1 to 200")
    faults = [
        (name, getattr(options, name.replace("-", "_"))) for name in ("cut", "slow-pair", "delay")
    ]
    for name, fault in [*faults, *(("slow", fault) for fault in options.slow)]:
        if fault and (max(fault[0]) >= options.nodes or len(set(fault[0])) < len(fault[0])):
            raise BadInput(f"--{name}: there are no such nodes: {options.nodes} are counted from 0")
    options.switch = (
        options.latency > 0 or options.slow_pair or options.delay
    )  # a program of its own
    return options


# Namespaces

LIBC = ctypes.CDLL(None, use_errno=True)
NODE, NEWPID, NEWUSER = (
    0x4C020000,
    0x20000000,
    0x10000000,
)  # what to unshare: a node's are mounts, names, IPC and network
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
            "this machine does not let you create namespaces, of which the nodes are made: allow user namespaces, or be root"
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
    waits for a core (4 ms, a tick of the scheduler). The queue is too long to drop anything:
    networks of this kind lose nothing; windows (below) keep it short.
    """
    burst = max(2 * (MTU + FRAME), int(rate / 8 * 4e-3))
    output_of(
        "tc",
        "qdisc",
        "add",
        "dev",
        adapter,
        "root",
        "handle",
        "1:",
        "tbf",
        "rate",
        f"{rate:.0f}bit",
        "burst",
        str(burst),
        "limit",
        str(1 << 30),
    )


# In place of the bridge `switch`, if packets are to take time

PACKET, VNET_HDR, IGNORE_OUTGOING, TIMESTAMPNS, SNDBUFFORCE, RCVBUFFORCE = (
    263,
    15,
    23,
    35,
    32,
    33,
)  # of Linux, not all in Python's socket
ALL_PROTOCOLS, HEADER = 3, 10  # bytes that the kernel puts in front of a frame


def open_port(name):
    """A socket whose frames carry what the kernel has put off, checksums and cutting, to the other
    end (virtio_net_hdr)."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for level, option, value in (
        (PACKET, VNET_HDR, 1),
        (PACKET, IGNORE_OUTGOING, 1),
        (socket.SOL_SOCKET, TIMESTAMPNS, 1),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30),
    ):
        port.setsockopt(level, option, value)
    with contextlib.suppress(PermissionError):  # more than anybody may have
        port.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 32 << 20)
        port.setsockopt(socket.SOL_SOCKET, SNDBUFFORCE, 1 << 30)
    port.bind((name, ALL_PROTOCOLS))
    return port


def delaying_switch(options, *names):
    """What arrives on a port leaves on another one so long after its arrival. The kernel has
    stamped that, so that it does not matter when this program gets a core, as long as it is in
    time. Two nodes may have a slower way, on which frames wait for each other.
    """
    ports, behind, waiting = (
        [open_port(name) for name in names],
        {},
        [],
    )  # address: its port; heap of (when it leaves, order, to where, frame)
    free, order = (
        collections.defaultdict(float),
        itertools.count(),
    )  # when a slow way has sent all that came before

    def leave(source, target, arrived, size):
        way = (ports.index(source), ports.index(target))
        if options.slow_pair and set(way) == set(options.slow_pair[0]):
            arrived = free[way] = max(arrived, free[way]) + 8 * size / options.slow_pair[1]
        return (
            arrived
            + options.latency
            + sum(options.delay[1] for node in way if options.delay and node in options.delay[0])
        )

    system("prctl", TIMER_SLACK, 1000)  # timers to the microsecond
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # a core at once
    yield
    while True:
        left = max(0.0, waiting[0][0] - time.time()) if waiting else None
        for source in select.select(ports, [], [], left)[0]:
            frame, notes, _, _ = source.recvmsg(1 << 17, 64)
            behind[frame[HEADER + 6 : HEADER + 12]] = source
            seconds, nanoseconds = struct.unpack("qq", notes[0][2])
            target = behind.get(frame[HEADER : HEADER + 6])
            for port in [target] if target else ports:
                if port is not source:
                    when = leave(source, port, seconds + 1e-9 * nanoseconds, len(frame) - HEADER)
                    heapq.heappush(waiting, (when, next(order), port, frame))
        while waiting and waiting[0][0] <= time.time():
            _, _, port, frame = heapq.heappop(waiting)
            with contextlib.suppress(OSError):  # the adapter of the node is cut: lost, as on a wire
                port.send(frame)


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
        ("admin", "admin", "10.78.0", 1500),
        ("eth0", "port", "10.77.0", MTU),
    ):
        ip(
            f"link add {adapter} mtu {mtu} type veth peer name {port}{number} mtu {mtu} netns 1",  # the room
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
    window = int(max(256 << 10, 2 * options.rate / 8 * (2 * options.latency + 5e-3)))
    set_kernel("ipv4/tcp_rmem", f"4096 {min(window, 131072)} {window}")
    set_kernel("ipv4/tcp_wmem", f"4096 {min(window, 131072)} {4 * window}")
    set_kernel("ipv4/tcp_congestion_control", "cubic")
    set_kernel("ipv4/tcp_slow_start_after_idle", 0)


def enter(words):
    """In place of ssh. mpiexec says: [-x] HOST COMMAND ..."""
    host, *command = words[words[0].startswith("-") :]
    process, cores = json.loads(os.environ.pop("MINITAW_NODES"))[host]
    os.sched_setaffinity(0, cores)
    os.execvp(
        "nsenter",
        [
            "nsenter",
            "--target",
            str(process),
            "--net",
            "--uts",
            "--ipc",
            "--mount",
            "--",
            "sh",
            "-c",
            " ".join(command),
        ],
    )


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


def faults_text(options):
    faults = (
        *(("slow", fault, 1e6, "mbit") for fault in options.slow),
        ("slow_pair", options.slow_pair, 1e6, "mbit"),
        ("delay", options.delay, 1e-3, "ms"),
    )
    return "".join(
        f" {name}={'-'.join(map(str, fault[0]))}:{fault[1] / unit:g}{suffix}"
        for name, fault, unit, suffix in faults
        if fault
    )


def start(options, nodes):
    """mpiexec. After what the user has set, ranks find the adapter that is shaped, and no other."""
    environment = {
        "UCX_TLS": "tcp,sm,self",
        "UCX_NET_DEVICES": "eth0",
        "FI_TCP_IFACE": "eth0",
    } | dict(os.environ)
    # For the record of the ranks (src/record): words NAME=VALUE.
    environment["MINITAW_SHAPED_LINKS"] = (
        f"nodes={options.nodes} ranks_per_node={options.ranks_per_node} rate={options.rate / 1e6:g}mbit "
        f"latency={options.latency * 1e3:g}ms mtu={MTU}{faults_text(options)}"
    )
    cores = sorted(os.sched_getaffinity(0))
    shares = cores_of(len(nodes), cores)
    if sum(map(len, shares)) > max(
        len(nodes), len(cores)
    ):  # all for all: each node would take them for its own
        environment["OMP_NUM_THREADS"] = environment.get("OMP_NUM_THREADS") or str(
            max(1, len(cores) // (len(nodes) * options.ranks_per_node))
        )
    environment["MINITAW_NODES"] = json.dumps(
        {f"node{number}": entry for number, entry in enumerate(zip(nodes, shares))}
    )
    hosts = ",".join(f"node{number}:{options.ranks_per_node}" for number in range(options.nodes))
    return subprocess.Popen(
        [
            "mpiexec",
            "-rmk",
            "user",
            "-hosts",
            hosts,
            "-launcher",
            "ssh",
            "-launcher-exec",
            __file__,
            "-iface",
            "admin",
            *options.program,
        ],
        env=environment,
    )


def counted(number):
    """What the kernel counted on a node's adapter: Ethernet headers and all behind them, whoever
    sent it. Of the other end: eth0 may be cut."""
    (port,) = json.loads(output_of("ip", "-json", "-statistics", "link", "show", f"port{number}"))
    return {
        name: port["stats64"][way]["bytes"]
        for name, way in (("sent_bytes", "rx"), ("received_bytes", "tx"))
    }


def tell(nodes, name):
    if name != "-":
        pathlib.Path(name).write_text(
            json.dumps({"nodes": nodes}, indent=2) + "\n", encoding="utf-8"
        )
    for number, node in enumerate(nodes if name == "-" else []):
        print(
            f"minitaw: node{number} sent {node['sent_bytes']} bytes and received {node['received_bytes']}",
            file=sys.stderr,
        )


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
        tell([counted(number) for number in range(options.nodes)], options.counters)
    return code if code >= 0 else 128 - code


def main(words):
    if "MINITAW_NODES" in os.environ:
        return enter(words)
    try:
        options = parse(words)
        if not all(
            map(shutil.which, ("ip", "tc", "nsenter", "mpiexec"))
        ) or "HYDRA" not in output_of("mpiexec", "--version"):
            raise BadInput(
                "this needs ip, tc, nsenter and the mpiexec of MPICH, whose nodes can be entered without ssh; with MINITAW_ENV=debian they are there"
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
    except (BadInput, OSError) as sentence:
        print(f"minitaw: {sentence}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
