"""Delays frames where the kernel has no netem: scripts/lib/cluster.py runs this in the machine room.

delay_line.py SECONDS OUT IN ...: whatever arrives on an adapter IN leaves on OUT so long after its arrival. The kernel has stamped the
arrival, so that it does not matter when this program gets a core, as long as it is in time.
"""

import collections
import ctypes
import os
import select
import socket
import struct
import sys
import time

PACKET, VNET_HDR, IGNORE_OUTGOING, TIMESTAMPNS, RCVBUFFORCE = 263, 15, 23, 35, 33  # of Linux, not all in Python's socket
ALL_PROTOCOLS = 3


def adapter(name, protocol):
    """A socket whose frames carry what the kernel has put off, checksums and cutting, to the other end (virtio_net_hdr)."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(PACKET, VNET_HDR, 1)
    opened.setsockopt(PACKET, IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
    for option in (socket.SO_RCVBUF, RCVBUFFORCE):
        try:
            opened.setsockopt(socket.SOL_SOCKET, option, 32 << 20)
        except PermissionError:  # more than anybody may have
            pass
    opened.bind((name, protocol))
    return opened


def hurry():
    """Timers to the microsecond, and a core at once where this is allowed."""
    ctypes.CDLL(None).prctl(29, 1000)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass


def main(delay, out, *names):
    leaving, arriving = adapter(out, 0), [adapter(name, ALL_PROTOCOLS) for name in names]
    hurry()
    waiting = collections.deque()  # (when it leaves, frame)
    print("ready", flush=True)
    while True:
        left = max(0.0, waiting[0][0] - time.time()) if waiting else None
        for got in select.select(arriving, [], [], left)[0]:
            frame, notes, _, _ = got.recvmsg(1 << 17, 64)
            seconds, nanoseconds = struct.unpack("qq", notes[0][2])
            waiting.append((seconds + 1e-9 * nanoseconds + delay, frame))
        while waiting and waiting[0][0] <= time.time():
            try:
                leaving.send(waiting.popleft()[1])
            except OSError:  # the adapter of the node is cut: lost, as on a wire
                pass


main(float(sys.argv[1]), *sys.argv[2:])
