"""A set of messages over persistent MPI requests: registered once, started and waited for every iteration."""

from __future__ import annotations

import operator
from types import TracebackType
from typing import Any, NamedTuple

from mpi4py import MPI

from . import _core
from ._buffers import message_from
from ._integers import whole_number
from .errors import check_running

__all__ = ["Channel", "Operation"]

_SEND, _RECV = 0, 1


class Operation(NamedTuple):
    """A registered message: "send" or "recv", peer rank, tag, size in bytes, and how it travels.

    `transport` is "mpi" until the channel is connected, and then one of

    - "shm": to the same node, copied through a slot in shared memory;
    - "shared": to the same node, one copy between two arrays from :func:`pchan.empty`;
    - "cma": to the same node, one copy by ``process_vm_readv`` or ``process_vm_writev``;
    - "bundle": to another node, in one MPI message with all other small ones to that rank;
    - "mpi": a persistent MPI request of its own;
    - "null": PROC_NULL.
    """

    kind: str
    peer: int
    tag: int
    nbytes: int
    transport: str


def _c_int(value: Any, what: str) -> int:
    return whole_number(value, what, -(2**31), 2**31 - 1)


class Channel(_core.Channel):
    """Messages to and from other ranks, started and finished together.

    ::

        with pchan.Channel(comm) as ch:
            ch.send_init(right_edge, dest=right)
            ch.recv_init(left_halo, source=left)
            for step in range(n_steps):
                ch.start()
                ...                          # compute what needs no halo
                ch.wait()

    ``with`` frees the channel at its end. When the body raises while the channel is active, the channel stays as
    it is, so that the error is seen.

    To compute on each message as it comes::

        ch.start()
        while (i := ch.wait_any()) is not None:
            ...                              # operation i has finished

    Every cycle starts the receives before the sends, each in the order of registration; messages between the same
    two ranks with the same tag meet in that order. Registering and freeing need an idle channel.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The first private channel on a communicator is collective over it: it makes the duplicate on which pchan's
        messages travel. Making further ones is local. With private=True the communicator may be freed afterwards.
    private : bool, default True
        False: messages travel on `comm` itself, so that the other end may use plain MPI calls.

    Raises
    ------
    TypeError, ValueError
        Not a communicator, COMM_NULL, an intercommunicator.
    StateError
        MPI is not running.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, comm: MPI.Intracomm, private: bool = True) -> Channel:
        if not isinstance(comm, MPI.Comm):
            raise TypeError(f"Channel: comm must be an mpi4py communicator, not {type(comm).__name__}")
        return super().__new__(cls, comm, comm.handle, bool(private))

    def send_init(self, buf: Any, dest: int, tag: int = 0) -> int:
        """Registers a message to `dest` and returns its index. Local; nothing is sent before start().

        Parameters
        ----------
        buf : array-like
            A NumPy array or strided view, any object with the buffer protocol, or mpi4py's ``[buf, datatype]``,
            ``[buf, count, datatype]``, ``[buf, (count, displacement), datatype]``. It is read in every cycle from
            start() to wait(), never copied, and kept alive until free(). Arrays travel in row-major order of their
            indices, whatever their order in memory.
        dest : int
            A rank, or MPI.PROC_NULL.
        tag : int, 0 to the communicator's TAG_UB

        Raises
        ------
        TypeError, ValueError, BufferError
            Nothing is registered then.
        StateError
            The channel is active or freed.
        """
        return self._register(_SEND, buf, _c_int(dest, "send_init: dest"), _c_int(tag, "send_init: tag"))

    def recv_init(self, buf: Any, source: int, tag: int = 0) -> int:
        """Registers room for a message from `source` and returns its index. Local. As :meth:`send_init`.

        `buf` must be writable. `source` may be MPI.ANY_SOURCE, and `tag` MPI.ANY_TAG.
        """
        return self._register(_RECV, buf, _c_int(source, "recv_init: source"), _c_int(tag, "recv_init: tag"))

    def _register(self, kind: int, buf: Any, peer: int, tag: int) -> int:
        check_running(("send_init", "recv_init")[kind])
        try:
            m = message_from(buf, kind == _RECV)
        except Exception as e:  # also what a buffer of the caller's own class raises
            error = type(e) if type(e) in (TypeError, ValueError, BufferError) else TypeError
            name = ("send_init", "recv_init")[kind]
            raise error(f"{name} (operation {len(self)}, peer {peer}, tag {tag}): {e}") from e
        if m.shape is None:
            index = self._add(kind, m.holder, m.address, m.n_elements, m.datatype.handle, peer, tag)
        else:
            assert m.strides is not None
            try:
                index = self._add_strided(
                    kind, m.holder, m.address, m.shape, m.strides, m.datatype.handle, peer, tag
                )
            finally:
                if m.temporary:
                    m.datatype.Free()
        if m.element or m.stated:
            self._describe(index, m.element, m.stated, m.column_major)
        return index

    def __getitem__(self, index: int) -> Operation:
        n, i = len(self), operator.index(index)
        if not -n <= i < n:
            raise IndexError(f"operation {i} does not exist; the channel has {n}")
        return Operation(*self._operation(i % n)[:5])

    def __bool__(self) -> bool:
        return True  # an empty channel is a channel

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not self.active:  # do not hide the error that left it active
            self.free()

    def __reduce__(self) -> Any:
        raise TypeError("a Channel cannot be pickled or copied: its requests belong to this process")

    def __repr__(self) -> str:
        if self.freed:
            return "<Channel, freed>"
        return f"<Channel of {len(self)} operations, {'active' if self.active else 'idle'}>"
