#!/usr/bin/env python3
"""An MPI job on nodes that are namespaces of this machine, behind one switch.

Three processes run this file. `Outside` starts the machine room, a PID namespace that dies with it, and passes signals in. `Room` is
the first process in there: it makes the nodes, connects them and calls mpiexec. Whatever ends it, and be it SIGKILL, takes every
process of the room with it, and with the last process the kernel removes namespaces, adapters and switch: nothing needs cleaning up,
and the machine's own network never sees any of it. mpiexec calls this file in place of ssh: `enter`.

    eth0 of a node  --veth--  port of the bridge `switch`: what the program sends between nodes, shaped at both ends
    admin of a node --veth--  port of the bridge `admin`:  what mpiexec says to its proxies; the nodes cannot reach each other on it

With a latency a program takes the place of the bridge `switch`: `delaying_switch`.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
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
from minitaw.command import BAD_INPUT, BadInput, Parser  # noqa: E402

MTU, FRAME = 9000, 14  # bytes of a packet (a jumbo frame), and of an Ethernet header, which the kernel counts


RATES, TIMES = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3}, {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def quantity(units, kind, example):
    def parse(text):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)([a-z]+)", text.lower())
        if not match or match[2] not in units or float(match[1]) == 0:
            raise argparse.ArgumentTypeError(f"'{text}' is no {kind}: write a number with {', '.join(units)}, such as {example}")
        return float(match[1]) * units[match[2]]
    return parse


def count(text):
    if not text.isdigit() or not 1 <= int(text) <= 200:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to 200")
    return int(text)


def cut(text):
    match = re.fullmatch(r"([0-9]+)@([0-9.]+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not NODE@SECONDS, such as 1@20")
    return int(match[1]), float(match[2])


def parse(words):
    parser = Parser(prog="scripts/cluster",
                    usage="scripts/cluster --nodes N --ranks-per-node R --rate RATE [OPTION ...] -- PROGRAM [ARGUMENT ...]",
                    description="Runs an MPI program on nodes that are namespaces of this machine, each with one adapter of this rate.")
    parser.add_argument("--nodes", type=count, required=True)
    parser.add_argument("--ranks-per-node", type=count, required=True)
    parser.add_argument("--rate", type=quantity(RATES, "rate", "100mbit"), required=True, help="of each node's adapter, each direction: 100mbit, 1gbit")
    parser.add_argument("--latency", type=quantity(TIMES, "time", "0.2ms"), default=0.0, help="added to the way from node to node: 50us, 0.2ms (default: none)")
    parser.add_argument("--cut", type=cut, metavar="NODE@SECONDS", help="takes the adapter of a node down so long after the start")
    parser.add_argument("--counters", action="store_true", help="says at the end what every adapter has carried, on standard error")
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    options.program = words[at + 1:]
    if not options.program:
        raise BadInput("no program: write -- and the program after the options (scripts/cluster --help lists all options)")
    if options.cut and options.cut[0] >= options.nodes:
        raise BadInput(f"there is no node {options.cut[0]} to cut: they are counted from 0")
    return options


def description(options):
    """For the record of the ranks (src/record): words NAME=VALUE."""
    def scaled(value, units):  # 100000000 as 100mbit
        unit = next((unit for unit, size in units.items() if value >= size), list(units)[-1])
        return f"{value / units[unit]:.6g}{unit}"

    return (f"nodes={options.nodes} ranks_per_node={options.ranks_per_node} rate={scaled(options.rate, RATES)} "
            f"latency={scaled(options.latency, TIMES)} mtu={MTU}")


# Outside

def namespaces():
    """The words that make the room's. Root keeps its rights on files, if it may; anybody else becomes root of a user namespace."""
    kinds = ["--net", "--mount", "--pid", "--uts", "--ipc"]
    for user in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *user, *kinds, "--fork", "--mount-proc"]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    raise BadInput("this machine does not let you create namespaces, of which the nodes are made: allow user namespaces, or be root")


def outside(words):
    options = parse(words)
    for tool in ("ip", "tc", "unshare", "nsenter", "mpiexec"):
        if not shutil.which(tool):
            raise BadInput(f"there is no {tool} here; with MINITAW_ENV=debian the environment of scripts/env brings it along")
    if "HYDRA" not in subprocess.run(["mpiexec", "--version"], capture_output=True, text=True, check=False).stdout:
        raise BadInput("mpiexec is not MPICH's, whose nodes can be entered without ssh; with MINITAW_ENV=debian it is")
    lifeline, end = os.pipe()
    command = [*namespaces(), sys.executable, __file__, "--room", str(lifeline), json.dumps(words)]
    with subprocess.Popen(command, pass_fds=[lifeline]) as room:
        os.close(lifeline)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda got, _: os.write(end, bytes([got])))
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal has sent it to mpiexec too
        return room.wait()


# The room

def run(*words, inside="self"):
    done = subprocess.run(["nsenter", f"--net=/proc/{inside}/ns/net", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"{' '.join(map(str, words))}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def set_kernel(name, value, inside="self"):
    """A parameter of a network namespace; not every kernel has all of them."""
    run("sh", "-c", f"echo {value} 2>/dev/null >/proc/sys/net/{name} || true", inside=inside)


def shape(adapter, rate, inside="self"):
    """The token bucket holds what may leave at once: two packets, or what passes while a timer waits for a core (4 ms, a tick of the
    scheduler). The queue is too long to drop anything: networks of this kind lose nothing; windows (below) keep it short."""
    burst = max(2 * (MTU + FRAME), int(rate / 8 * 4e-3))
    run("tc", "qdisc", "add", "dev", adapter, "root", "handle", "1:", "tbf", "rate", f"{rate:.0f}bit", "burst", burst, "limit", 1 << 30,
        inside=inside)


# In place of the bridge `switch`, if packets are to take time

PACKET, VNET_HDR, IGNORE_OUTGOING, TIMESTAMPNS, SNDBUFFORCE, RCVBUFFORCE = 263, 15, 23, 35, 32, 33  # of Linux, not all in Python's socket
ALL_PROTOCOLS, HEADER = 3, 10  # bytes that the kernel puts in front of a frame


def open_port(name):
    """A socket whose frames carry what the kernel has put off, checksums and cutting, to the other end (virtio_net_hdr)."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for level, option, value in ((PACKET, VNET_HDR, 1), (PACKET, IGNORE_OUTGOING, 1), (socket.SOL_SOCKET, TIMESTAMPNS, 1),
                                 (socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20), (socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)):
        port.setsockopt(level, option, value)
    with contextlib.suppress(PermissionError):  # more than anybody may have
        port.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 32 << 20)
        port.setsockopt(socket.SOL_SOCKET, SNDBUFFORCE, 1 << 30)
    port.bind((name, ALL_PROTOCOLS))
    return port


def delaying_switch(latency, *names):
    """What arrives on a port leaves on another one so long after its arrival. The kernel has stamped that, so that it does not matter when
    this program gets a core, as long as it is in time."""
    ports, behind, waiting = [open_port(name) for name in names], {}, collections.deque()  # address: its port; (when it leaves, from where, frame)
    ctypes.CDLL(None).prctl(29, 1000)  # timers to the microsecond
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # a core at once
    print("ready", flush=True)
    while True:
        left = max(0.0, waiting[0][0] - time.time()) if waiting else None
        for source in select.select(ports, [], [], left)[0]:
            frame, notes, _, _ = source.recvmsg(1 << 17, 64)
            behind[frame[HEADER + 6:HEADER + 12]] = source
            seconds, nanoseconds = struct.unpack("qq", notes[0][2])
            waiting.append((seconds + 1e-9 * nanoseconds + latency, source, frame))
        while waiting and waiting[0][0] <= time.time():
            _, source, frame = waiting.popleft()
            target = behind.get(frame[HEADER:HEADER + 6])
            for port in [target] if target else ports:
                with contextlib.suppress(OSError):  # the adapter of the node is cut: lost, as on a wire
                    port is source or port.send(frame)


# Nodes

def mount(source, target, kind, flags=0):
    if ctypes.CDLL(None, use_errno=True).mount(source.encode(), target.encode(), kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def hold(name):
    """The process that keeps a node's namespaces. A host name, /dev/shm, System V memory, a list of adapters and a boot of its own: by
    these MPI and UCX tell nodes apart."""
    bind = 4096
    socket.sethostname(name)
    mount("shm", "/dev/shm", "tmpfs")
    try:
        mount("sys", "/sys", "sysfs")
    except OSError:  # inside of a container: only the list of adapters
        mount("net", "/sys/class/net", "tmpfs")
        for adapter in ("lo", "eth0"):
            os.mkdir(f"/sys/class/net/{adapter}")
    with open("/dev/shm/boot_id", "w", encoding="ascii") as boot:
        boot.write(f"{uuid.uuid4()}\n")
    mount("/dev/shm/boot_id", "/proc/sys/kernel/random/boot_id", "", bind)
    print("ready", flush=True)
    signal.pause()


class Node:
    def __init__(self, number, options):
        self.name, self.port = f"node{number}", f"port{number}"
        held = subprocess.Popen(["unshare", "--net", "--uts", "--ipc", "--mount", sys.executable, __file__, "--hold", self.name],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if held.stdout.readline() != "ready\n":
            raise BadInput(f"cannot make a node: {held.stderr.read().strip().splitlines()[-1]}")
        self.pid = held.pid
        self.connect("admin", f"admin{number}", "admin", f"10.78.0.{number + 2}/24", 1500)
        self.connect("eth0", self.port, "switch", f"10.77.0.{number + 2}/24", MTU)
        if options.latency:
            run("ip", "link", "set", self.port, "nomaster")
        run("ip", "link", "set", f"admin{number}", "type", "bridge_slave", "isolated", "on")
        run("ip", "link", "set", "lo", "up", inside=self.pid)
        shape(self.port, options.rate)
        shape("eth0", options.rate, inside=self.pid)
        self.limit_windows(options)

    def connect(self, adapter, port, bridge, address, mtu):
        run("ip", "link", "add", port, "mtu", mtu, "type", "veth", "peer", "name", adapter, "mtu", mtu, "netns", self.pid)
        run("ip", "link", "set", port, "master", bridge, "up")
        set_kernel(f"ipv6/conf/{adapter}/disable_ipv6", 1, self.pid)
        run("ip", "address", "add", address, "dev", adapter, inside=self.pid)
        run("ip", "link", "set", adapter, "up", inside=self.pid)

    def limit_windows(self, options):
        """Enough for 10 ms, in which a rank may not get a core; more would only wait in the queues. Nothing is lost here, so that
        windows stay open once they are; BBR would take a lack of cores for a slower network."""
        window = int(max(256 << 10, 2 * options.rate / 8 * (2 * options.latency + 5e-3)))
        set_kernel("ipv4/tcp_rmem", f"4096 {min(window, 131072)} {window}", self.pid)
        set_kernel("ipv4/tcp_wmem", f"4096 {min(window, 131072)} {4 * window}", self.pid)
        set_kernel("ipv4/tcp_congestion_control", "cubic", self.pid)
        set_kernel("ipv4/tcp_slow_start_after_idle", 0, self.pid)

    def carried(self):
        (link,) = json.loads(run("ip", "-json", "-statistics", "link", "show", "eth0", inside=self.pid))
        return link["stats64"]["tx"]["bytes"], link["stats64"]["rx"]["bytes"]


def start(options, nodes):
    """mpiexec. After what the user has set, ranks find the adapter that is shaped, and no other."""
    own = {"UCX_TLS": "tcp,sm,self", "UCX_NET_DEVICES": "eth0", "FI_TCP_IFACE": "eth0"}
    environment = own | dict(os.environ) | {"MINITAW_SHAPED_LINKS": description(options)}
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // len(nodes)
    for number, node in enumerate(nodes):
        # as many cores for each node, or all for all
        own_cores = cores[number * share:(number + 1) * share] if share * len(nodes) == len(cores) else cores
        environment[f"MINITAW_ENTER_{node.name}"] = f"{node.pid} {','.join(map(str, own_cores))}"
    hosts = ",".join(f"{node.name}:{options.ranks_per_node}" for node in nodes)
    return subprocess.Popen(["mpiexec", "-rmk", "user", "-hosts", hosts, "-launcher", "ssh", "-launcher-exec", __file__, "-iface", "admin",
                             *options.program], env=environment)


def follow(lifeline, job):
    """Passes signals on; ends everything when the process outside is gone."""
    while word := os.read(lifeline, 1):
        if job.poll() is None:
            job.send_signal(word[0])
    os._exit(1)


def room(lifeline, words):
    # with `unshare`, which is between the outside and this
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    options = parse(words)
    run("ip", "link", "set", "lo", "up")
    for bridge in ("switch", "admin"):
        run("ip", "link", "add", bridge, "type", "bridge")
        set_kernel(f"ipv6/conf/{bridge}/disable_ipv6", 1)
        run("ip", "link", "set", bridge, "up")
    run("ip", "address", "add", "10.78.0.1/24", "dev", "admin")
    nodes = [Node(number, options) for number in range(options.nodes)]
    if options.latency:
        switch = subprocess.Popen([sys.executable, __file__, "--switch", str(options.latency), *(node.port for node in nodes)], stdout=subprocess.PIPE)
        if switch.stdout.readline() != b"ready\n":
            raise BadInput("cannot delay: the program that takes the place of the switch has ended")
    job = start(options, nodes)
    threading.Thread(target=follow, args=(lifeline, job), daemon=True).start()
    if options.cut:
        node, seconds = options.cut
        threading.Timer(seconds, run, ("ip", "link", "set", f"port{node}", "down")).start()
    code = job.wait()
    if options.counters:
        for node in nodes:
            sent, received = node.carried()
            print(f"minitaw: {node.name} sent {sent} bytes and received {received}", file=sys.stderr)
    return code if code >= 0 else 128 - code


# In place of ssh

def enter(words):
    """mpiexec says: [-x] HOST COMMAND ..."""
    while words[0].startswith("-"):
        words = words[1:]
    pid, cores = os.environ[f"MINITAW_ENTER_{words[0]}"].split()
    os.sched_setaffinity(0, map(int, cores.split(",")))
    for name in [name for name in os.environ if name.startswith("MINITAW_ENTER_")]:
        del os.environ[name]
    into = ["nsenter", "--target", pid, "--net", "--uts", "--ipc", "--mount", "--"]
    os.execvp(into[0], [*into, "sh", "-c", " ".join(words[1:])])


def main(words):
    if any(name.startswith("MINITAW_ENTER_") for name in os.environ):
        return enter(words)
    if words[:1] == ["--hold"]:
        return hold(words[1])
    if words[:1] == ["--switch"]:
        return delaying_switch(float(words[1]), *words[2:])
    try:
        return room(int(words[1]), json.loads(words[2])) if words[:1] == ["--room"] else outside(words)
    except BadInput as sentence:
        print(f"minitaw: {sentence}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
