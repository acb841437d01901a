"""The systems that bench_channel.py compares. Each is a class that registers a ring of messages and runs cycles:

    system = Class(setting)        collective; registered outside the timing
    system.run(n_cycles) -> ns     the time of n cycles of start and wait
    system.free()

To add one, write the class and its line in SYSTEMS.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import _native
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan

CACHE_LINE = 64


class Setting(NamedTuple):
    """One cell of the grid: n_pairs messages of `nbytes` to the right, as many from the left."""

    comm: MPI.Intracomm
    library: ctypes.CDLL
    out: npt.NDArray[np.uint8]  # [n_pairs, stride]: the first nbytes of each row travel
    into: npt.NDArray[np.uint8]
    nbytes: int
    one_tag: bool

    @property
    def left(self) -> int:
        return (self.comm.rank - 1) % self.comm.size

    @property
    def right(self) -> int:
        return (self.comm.rank + 1) % self.comm.size

    def pairs(self) -> list[tuple[int, npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]:
        """(tag, to send, to receive) of each pair."""
        return [
            (42 if self.one_tag else k, out[: self.nbytes], into[: self.nbytes])
            for k, (out, into) in enumerate(zip(self.out, self.into, strict=True))
        ]


def setting_for(comm: MPI.Intracomm, library: ctypes.CDLL, nbytes: int, n_pairs: int, one_tag: bool) -> Setting:
    stride = -(-nbytes // CACHE_LINE) * CACHE_LINE
    out = np.full((n_pairs, stride), comm.rank, dtype=np.uint8)
    into = np.full((n_pairs, stride), 255, dtype=np.uint8)
    return Setting(comm, library, out, into, nbytes, one_tag)


class System(Protocol):
    def run(self, n_cycles: int) -> int: ...
    def free(self) -> None: ...


class CLoop:
    """A loop in channel_loops.c."""

    def __init__(self, setting: Setting, name: str) -> None:
        s = setting
        self.library = s.library
        ring = _native.Ring(
            s.out.ctypes.data, s.into.ctypes.data, s.out.strides[0], s.nbytes, len(s.out), s.one_tag
        )
        self.loop = self.library.bench_create(name.encode(), s.comm.handle % 2**64, ctypes.byref(ring))

    def run(self, n_cycles: int) -> int:
        ns: int = self.library.bench_run(self.loop, n_cycles)
        return ns

    def free(self) -> None:
        self.library.bench_destroy(self.loop)


class Persistent:
    """mpi4py's persistent requests."""

    def __init__(self, setting: Setting) -> None:
        s = setting
        self.requests = [s.comm.Recv_init([into, MPI.BYTE], s.left, tag) for tag, _, into in s.pairs()]
        self.requests += [s.comm.Send_init([out, MPI.BYTE], s.right, tag) for tag, out, _ in s.pairs()]

    def run(self, n_cycles: int) -> int:
        requests, startall, waitall = self.requests, MPI.Prequest.Startall, MPI.Prequest.Waitall
        begin = time.perf_counter_ns()
        for _ in itertools.repeat(None, n_cycles):
            startall(requests)
            waitall(requests)
        return time.perf_counter_ns() - begin

    def free(self) -> None:
        for request in self.requests:
            request.Free()


class Nonblocking:
    """mpi4py's Isend and Irecv, anew in every cycle."""

    def __init__(self, setting: Setting) -> None:
        s = setting
        self.comm = s.comm
        self.recvs = [([into, MPI.BYTE], s.left, tag) for tag, _, into in s.pairs()]
        self.sends = [([out, MPI.BYTE], s.right, tag) for tag, out, _ in s.pairs()]

    def run(self, n_cycles: int) -> int:
        recvs, sends, waitall = self.recvs, self.sends, MPI.Request.Waitall
        irecv, isend = self.comm.Irecv, self.comm.Isend
        begin = time.perf_counter_ns()
        for _ in itertools.repeat(None, n_cycles):
            requests = [irecv(*recv) for recv in recvs]
            requests += [isend(*send) for send in sends]
            waitall(requests)
        return time.perf_counter_ns() - begin

    def free(self) -> None:
        pass


class Channel:
    """pchan from Python."""

    def __init__(
        self, setting: Setting, connect: bool = False, shared: bool = False, one_call: bool = True
    ) -> None:
        s = setting
        if shared:  # as setting_for, in node-shared memory
            out, into = (pchan.empty(s.comm, a.shape, a.dtype) for a in (s.out, s.into))
            out[:] = s.out
            s = s._replace(out=out, into=into)
        self.into = s.into
        self.one_call = one_call
        self.channel = pchan.Channel(s.comm)
        for tag, out, into in s.pairs():
            self.channel.recv_init(into, s.left, tag)
            self.channel.send_init(out, s.right, tag)
        if connect:
            self.channel.connect()

    def run(self, n_cycles: int) -> int:
        if self.one_call:
            exchange = self.channel.exchange
            begin = time.perf_counter_ns()
            for _ in itertools.repeat(None, n_cycles):
                exchange()
            return time.perf_counter_ns() - begin
        start, wait = self.channel.start, self.channel.wait
        begin = time.perf_counter_ns()
        for _ in itertools.repeat(None, n_cycles):
            start()
            wait()
        return time.perf_counter_ns() - begin

    def free(self) -> None:
        self.channel.free()


class Entry(NamedTuple):
    """A line of the table: a heading of at most 12 characters, and what it stands for."""

    heading: str
    make: Callable[[Setting], Any]
    meaning: str


SYSTEMS: dict[str, Entry] = {
    "raw_waitall": Entry("C Waitall", lambda s: CLoop(s, "waitall"), "C: MPI_Startall, MPI_Waitall"),
    "raw_testall": Entry("C Testall", lambda s: CLoop(s, "testall"), "C: MPI_Startall, MPI_Testall until done"),
    "temporaries": Entry(
        "temporaries",
        lambda s: CLoop(s, "temporaries"),
        "C: Startall and Waitall on fresh arrays, as KokkosComm did",
    ),
    "mpi4py_persistent": Entry("mpi4py Pre.", Persistent, "mpi4py: Prequest.Startall, Prequest.Waitall"),
    "mpi4py_nonblocking": Entry("mpi4py Isend", Nonblocking, "mpi4py: Irecv, Isend, Request.Waitall"),
    "pchan": Entry("pchan", Channel, "pchan from Python: exchange()"),
    "pchan_two_calls": Entry(
        "pchan 2 calls", lambda s: Channel(s, one_call=False), "pchan from Python: start(), wait()"
    ),
    "pchan_core": Entry("pchan in C", lambda s: CLoop(s, "pchan"), "C: pchan_channel_start, pchan_channel_wait"),
    "pchan_connected": Entry(
        "connected", lambda s: Channel(s, connect=True), "pchan from Python after connect(): exchange()"
    ),
    "pchan_shared": Entry(
        "empty", lambda s: Channel(s, connect=True, shared=True), "the same on arrays from pchan.empty"
    ),
}
