"""Persistent operations for mpi4py programs, in C: set up once, then `start()` and `wait()` in every iteration.

``Channel`` moves a registered set of messages; ``QReduceScatter`` sums every node's exact contribution to a
symmetric matrix and leaves each element with its owner; ``gram`` goes from rows of P to a distributed Q = Σ PᵀP.
"""

from importlib.metadata import version as _version

from . import _select

_core = _select.load()

from .basis import PrimeBasis, ints_to_limbs, limbs_to_ints  # noqa: E402
from .channel import Channel, Operation  # noqa: E402
from .errors import MatchError, MPIError, RangeError, StateError, WaitTimeout  # noqa: E402
from .gram import Gram, GramPlan, gram  # noqa: E402
from .layout import BlockCyclic, CustomLayout, ElementCyclic, PackedRows  # noqa: E402
from .qreduce import Estimate, QReduceScatter  # noqa: E402
from .shared import empty  # noqa: E402

__version__ = _version("pchan")

__all__ = [
    "BlockCyclic",
    "Channel",
    "CustomLayout",
    "ElementCyclic",
    "Estimate",
    "Gram",
    "GramPlan",
    "MPIError",
    "MatchError",
    "Operation",
    "PackedRows",
    "PrimeBasis",
    "QReduceScatter",
    "RangeError",
    "StateError",
    "WaitTimeout",
    "empty",
    "gram",
    "ints_to_limbs",
    "limbs_to_ints",
]
