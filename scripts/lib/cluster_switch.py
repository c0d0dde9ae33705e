# SPDX-License-Identifier: BSD-3-Clause
"""Takes the place of the bridge `switch` of scripts/cluster, if packets are to take time
(docs/cluster.md)."""

import collections
import contextlib
import heapq
import itertools
import os
import select
import socket
import struct
import time

# Of Linux, not all in Python's socket.
PACKET = 263
VNET_HDR, IGNORE_OUTGOING, TIMESTAMPNS, SNDBUFFORCE, RCVBUFFORCE = 15, 23, 35, 32, 33
ALL_PROTOCOLS = 3
HEADER = 10  # bytes that the kernel puts in front of a frame
ADDRESS = 6  # bytes; a frame begins with that of the receiver, then that of the sender
RECEIVE_BUFFER, SEND_BUFFER = 32 << 20, 1 << 30  # bytes
MOST_FRAME, MOST_NOTES = 1 << 17, 64  # bytes that are received at once


def open_port(name):
    """A socket whose frames carry what the kernel has put off, checksums and cutting, to the other
    end (virtio_net_hdr)."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for level, option, value in (
        (PACKET, VNET_HDR, 1),
        (PACKET, IGNORE_OUTGOING, 1),
        (socket.SOL_SOCKET, TIMESTAMPNS, 1),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER),
    ):
        port.setsockopt(level, option, value)
    with contextlib.suppress(PermissionError):  # more than anybody may have
        port.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, RECEIVE_BUFFER)
        port.setsockopt(socket.SOL_SOCKET, SNDBUFFORCE, SEND_BUFFER)
    port.bind((name, ALL_PROTOCOLS))
    return port


class Switch:
    """What arrives on a port leaves on another one so long after its arrival. The kernel has
    stamped that, so that it does not matter when this program gets a core, as long as it is in
    time. Two nodes may have a slower way, on which frames wait for each other.
    """

    def __init__(self, options, names):
        self.options = options
        self.ports = [open_port(name) for name in names]
        self.port_of = {}  # by address
        self.waiting = []  # heap of (when it leaves, order, to where, frame)
        self.order = itertools.count()
        self.free = collections.defaultdict(float)  # when a slow way has sent all that came before

    def leaves(self, source, target, arrived, size):
        """When a frame of so many bytes leaves that arrived then."""
        options, way = self.options, (self.ports.index(source), self.ports.index(target))
        if options.slow_pair:
            nodes, rate = options.slow_pair
            if set(way) == set(nodes):
                arrived = self.free[way] = max(arrived, self.free[way]) + 8 * size / rate
        return arrived + options.latency

    def receive(self, source):
        """Takes a frame, and puts it where it waits: for all ports if its receiver is not known."""
        frame, notes, _, _ = source.recvmsg(MOST_FRAME, MOST_NOTES)
        receiver = frame[HEADER : HEADER + ADDRESS]
        sender = frame[HEADER + ADDRESS : HEADER + 2 * ADDRESS]
        self.port_of[sender] = source
        seconds, nanoseconds = struct.unpack("qq", notes[0][2])
        arrived = seconds + 1e-9 * nanoseconds
        target = self.port_of.get(receiver)
        for port in [target] if target else self.ports:
            if port is not source:
                when = self.leaves(source, port, arrived, len(frame) - HEADER)
                heapq.heappush(self.waiting, (when, next(self.order), port, frame))

    def send(self):
        """All whose time has come."""
        while self.waiting and self.waiting[0][0] <= time.time():
            _, _, port, frame = heapq.heappop(self.waiting)
            with contextlib.suppress(OSError):  # the adapter of the node is cut: lost, as on a wire
                port.send(frame)

    def run(self):
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # a core at once
        yield  # it is ready
        while True:
            left = max(0.0, self.waiting[0][0] - time.time()) if self.waiting else None
            for source in select.select(self.ports, [], [], left)[0]:
                self.receive(source)
            self.send()
