"""The systems that bench_channel.py compares. Each is a class that registers a pattern's messages and runs cycles:

    system = Class(setting)        collective; registered outside the timing
    system.run(n_cycles) -> ns     the time of n cycles: start and wait of each phase
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
from _patterns import Pattern
from mpi4py import MPI

import pchan


class Setting(NamedTuple):
    """One cell of the grid: the same messages for all systems, but for one in node-shared memory."""

    comm: MPI.Intracomm
    library: ctypes.CDLL
    pattern: Pattern
    in_shared_memory: Callable[[], Pattern]


class System(Protocol):
    pattern: Pattern

    def run(self, n_cycles: int) -> int: ...
    def free(self) -> None: ...


class CLoop:
    """A loop in channel_loops.c."""

    def __init__(self, setting: Setting, name: str) -> None:
        self.pattern, self.library = setting.pattern, setting.library
        messages = self.pattern.messages
        array = (_native.Message * max(len(messages), 1))()
        for k, (phase, m) in enumerate(messages):
            memory, count, datatype = m.spec
            handle = datatype.handle % 2**64
            array[k] = _native.Message(memory.ctypes.data, count, handle, m.peer, m.tag, m.is_send, phase)
        comm, n_phases = setting.comm.handle % 2**64, len(self.pattern.phases)
        self.loop = self.library.bench_create(name.encode(), comm, n_phases, len(messages), array)

    def run(self, n_cycles: int) -> int:
        ns: int = self.library.bench_run(self.loop, n_cycles)
        return ns

    def free(self) -> None:
        self.library.bench_destroy(self.loop)


class Persistent:
    """mpi4py's persistent requests."""

    def __init__(self, setting: Setting) -> None:
        comm, self.pattern = setting.comm, setting.pattern
        self.phases = [
            [(comm.Send_init if m.is_send else comm.Recv_init)(m.spec, m.peer, m.tag) for m in phase]
            for phase in self.pattern.phases
        ]

    def run(self, n_cycles: int) -> int:
        phases, startall, waitall = self.phases, MPI.Prequest.Startall, MPI.Prequest.Waitall
        begin = time.perf_counter_ns()
        for _ in itertools.repeat(None, n_cycles):
            for requests in phases:
                startall(requests)
                waitall(requests)
        return time.perf_counter_ns() - begin

    def free(self) -> None:
        for request in itertools.chain(*self.phases):
            request.Free()


class Nonblocking:
    """mpi4py's Isend and Irecv, anew in every cycle."""

    def __init__(self, setting: Setting) -> None:
        self.comm, self.pattern = setting.comm, setting.pattern
        self.phases = [
            [(self.comm.Isend if m.is_send else self.comm.Irecv, (m.spec, m.peer, m.tag)) for m in phase]
            for phase in self.pattern.phases
        ]

    def run(self, n_cycles: int) -> int:
        phases, waitall = self.phases, MPI.Request.Waitall
        begin = time.perf_counter_ns()
        for _ in itertools.repeat(None, n_cycles):
            for calls in phases:
                waitall([call(*arguments) for call, arguments in calls])
        return time.perf_counter_ns() - begin

    def free(self) -> None:
        pass


class Channel:
    """pchan from Python."""

    def __init__(
        self, setting: Setting, connect: bool = False, shared: bool = False, one_call: bool = True
    ) -> None:
        self.pattern, self.one_call = setting.in_shared_memory() if shared else setting.pattern, one_call
        self.channels = [pchan.Channel(setting.comm) for _ in self.pattern.phases]
        for channel, phase in zip(self.channels, self.pattern.phases, strict=True):
            for m in phase:
                (channel.send_init if m.is_send else channel.recv_init)(m.array, m.peer, m.tag)
        for channel in self.channels:
            if connect:
                channel.connect()

    def run(self, n_cycles: int) -> int:
        if self.one_call:
            return repeat([c.exchange for c in self.channels], n_cycles)
        return repeat([call for c in self.channels for call in (c.start, c.wait)], n_cycles)

    def free(self) -> None:
        for channel in self.channels:
            channel.free()


def repeat(calls: list[Callable[[], Any]], n_cycles: int) -> int:
    """Nanoseconds of n cycles; one call a cycle, the common case, without a loop over calls."""
    first, *others = calls
    if not others:
        begin = time.perf_counter_ns()
        for _ in itertools.repeat(None, n_cycles):
            first()
        return time.perf_counter_ns() - begin
    begin = time.perf_counter_ns()
    for _ in itertools.repeat(None, n_cycles):
        for call in calls:
            call()
    return time.perf_counter_ns() - begin


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
