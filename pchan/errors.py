"""The exceptions of pchan. Each message names the operation concerned."""

from __future__ import annotations

from mpi4py import MPI

__all__ = ["MPIError", "MatchError", "RangeError", "StateError", "WaitTimeout"]


class StateError(RuntimeError):
    """The right call at the wrong moment: start twice, register while active, use after free or in a
    forked child, two threads at once."""


class MatchError(ValueError):
    """The two ends of a message do not fit."""


class WaitTimeout(TimeoutError):
    """The time given to a wait is over. The object is still active and can be waited on again."""


class RangeError(ArithmeticError):
    """An integer lies outside the basis (``|x| >= 2**bits``), or a residue was corrupted."""


class MPIError(MPI.Exception):
    """MPI returned an error. ``Get_error_code()`` and ``Get_error_class()`` are those of mpi4py's exception."""

    def __new__(cls, ierr: int = MPI.ERR_OTHER, message: str = "") -> MPIError:
        return super().__new__(cls, ierr)

    def __init__(self, ierr: int = MPI.ERR_OTHER, message: str = "") -> None:
        super().__init__(ierr)
        self.message = message

    def __str__(self) -> str:
        return self.message or str(super().__str__())


def check_running(what: str) -> None:
    """StateError unless MPI is initialised and not finalised: mpi4py's own calls would abort the process."""
    if not MPI.Is_initialized() or MPI.Is_finalized():
        raise StateError(f"{what}: MPI is {'finalised' if MPI.Is_finalized() else 'not initialised'}")
