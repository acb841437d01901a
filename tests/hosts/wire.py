"""Links with a delay, for kernels without netem: python wire.py DELAY_MS NAME:NAME ...

Makes two network interfaces (TAP) per link. A frame that leaves through one arrives at the other DELAY_MS later. Says
"ready" when all are there; they vanish when it ends, which it does at the end of its standard input.
"""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAMES = 5000  # in flight; more are lost, as in a switch


def tap(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def arrivals(fd: int):
    while True:
        try:
            yield os.read(fd, 1 << 16)
        except OSError:  # nothing there, or the interface is down
            return


def deliver(queue: deque, now: float) -> None:
    while queue and queue[0][0] <= now:
        _, fd, frame = queue.popleft()
        try:
            os.write(fd, frame)
        except OSError:  # lost: the interface is down or full
            pass


def main(delay: float, names: list[list[str]]) -> None:
    other = {}
    for a, b in names:
        ends = tap(a), tap(b)
        other.update((ends, ends[::-1]))
    print("ready", flush=True)
    queue: deque = deque()
    while True:
        wait = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        readable, _, _ = select.select([sys.stdin, *other], [], [], wait)
        if sys.stdin in readable:
            return
        now = time.monotonic()
        for fd in readable:
            for frame in arrivals(fd):
                if len(queue) < FRAMES:
                    queue.append((now + delay, other[fd], frame))
        deliver(queue, time.monotonic())


if __name__ == "__main__":
    main(float(sys.argv[1]) / 1e3, [pair.split(":") for pair in sys.argv[2:]])
