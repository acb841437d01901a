"""What messages a cycle of bench_channel.py has: a ring, a ping-pong, a halo in three dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan

CACHE_LINE = 64
Array = npt.NDArray[Any]


class Message(NamedTuple):
    """A registered message: a part of an array, strided or not, and where it goes to or comes from."""

    array: Array  # as pchan takes it
    spec: tuple[Array, int, MPI.Datatype]  # the same as MPI takes it: memory, count, datatype
    peer: int
    tag: int
    is_send: bool

    @classmethod
    def plain(cls, array: Array, peer: int, tag: int, is_send: bool) -> Message:
        return cls(array, (array, array.nbytes, MPI.BYTE), peer, tag, is_send)


class Pattern(NamedTuple):
    """Phases of messages; each phase is started and waited for before the next.

    `right` tells whether a cycle moved everything, after `poison` made what was there unusable.
    """

    phases: Sequence[Sequence[Message]]
    poison: Callable[[], None]
    right: Callable[[], bool]

    @property
    def messages(self) -> list[tuple[int, Message]]:
        return [(number, message) for number, phase in enumerate(self.phases) for message in phase]


Maker = Callable[..., Array]  # as np.empty


def _messages(out: Array, into: Array, nbytes: int, to: int, source: int, one_tag: bool) -> list[list[Message]]:
    """A receive and a send for each row of the arrays: [receives, sends]."""
    tags = [42 if one_tag else k for k in range(len(out))]
    return [
        [Message.plain(into[k, :nbytes], source, tag, False) for k, tag in enumerate(tags)],
        [Message.plain(out[k, :nbytes], to, tag, True) for k, tag in enumerate(tags)],
    ]


def ring(comm: MPI.Intracomm, empty: Maker, nbytes: int, pairs: int, one_tag: bool = True) -> Pattern:
    """KokkosComm's: `pairs` messages of `nbytes` to rank + 1 and from rank - 1, each with memory of its own."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    stride = -(-nbytes // CACHE_LINE) * CACHE_LINE
    out, into = empty((pairs, stride), np.uint8), empty((pairs, stride), np.uint8)
    out[:] = comm.rank
    recvs, sends = _messages(out, into, nbytes, right, left, one_tag)
    return Pattern([[*recvs, *sends]], lambda: into.fill(255), lambda: bool(np.all(into[:, :nbytes] == left)))


def pingpong(comm: MPI.Intracomm, empty: Maker, nbytes: int, pairs: int, one_tag: bool = True) -> Pattern:
    """As OSU's osu_latency_persistent: there and, when it has come, back. Ranks above 1 stand by."""
    out, into = empty((pairs, nbytes), np.uint8), empty((pairs, nbytes), np.uint8)
    out[:], peer = comm.rank, 1 - comm.rank
    if comm.rank > 1:
        return Pattern([[], []], lambda: None, lambda: True)
    recvs, sends = _messages(out, into, nbytes, peer, peer, one_tag)
    phases = [recvs, sends] if comm.rank else [sends, recvs]
    return Pattern(phases, lambda: into.fill(255), lambda: bool(np.all(into == peer)))


def halo(comm: MPI.Intracomm, empty: Maker, nbytes: int, pairs: int, one_tag: bool = True) -> Pattern:
    """Faces, edges and corners to all 26 neighbours of a periodic box, straight from and into the array.

    n = `nbytes` cells a side of each rank (float64) and a halo of one, for each of `pairs` fields. Every message
    has a tag of its own, since ranks may be several neighbours at once.
    """
    del one_tag
    n, fields = nbytes, pairs
    grid = MPI.Compute_dims(comm.size, 3)
    place = np.array(np.unravel_index(comm.rank, grid))
    cells = empty((fields, n + 2, n + 2, n + 2), np.float64)
    inside = (slice(None), *[slice(1, -1)] * 3)
    directions = [d for d in itertools.product((-1, 0, 1), repeat=3) if any(d)]

    def rank_at(direction: Sequence[int]) -> int:
        return int(np.ravel_multi_index(tuple((place + direction) % grid), grid))

    def part(direction: Sequence[int], of_halo: bool) -> tuple[slice, ...]:
        edge = {-1: 0 if of_halo else 1, 1: n + 1 if of_halo else n}
        cut = [slice(edge[d], edge[d] + 1) if d else slice(1, n + 1) for d in direction]
        return (slice(0, fields), *cut)

    def poison() -> None:
        cells[:] = -1.0
        cells[inside] = float(comm.rank)

    def right() -> bool:
        return all(bool(np.all(cells[part(d, True)] == rank_at(d))) for d in directions)

    def message(direction: Sequence[int], is_send: bool) -> Message:
        cut = part(direction, not is_send)
        travels = tuple(direction) if is_send else tuple(-d for d in direction)
        spec = (cells, 1, subarray(cells, cut))
        return Message(cells[cut], spec, rank_at(direction), directions.index(travels), is_send)

    poison()
    return Pattern([[message(d, s) for s in (False, True) for d in directions]], poison, right)


def subarray(cells: Array, cut: tuple[slice, ...]) -> MPI.Datatype:
    lengths = [s.stop - s.start for s in cut]
    return MPI.DOUBLE.Create_subarray(cells.shape, lengths, [s.start for s in cut]).Commit()


PATTERNS: dict[str, Callable[..., Pattern]] = {"ring": ring, "pingpong": pingpong, "halo": halo}


def node_shared(comm: MPI.Intracomm) -> Maker:
    return lambda shape, dtype: pchan.empty(comm, shape, dtype)
