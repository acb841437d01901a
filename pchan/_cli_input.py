# SPDX-License-Identifier: MIT
"""P from .npy and .npz files for the command line: each rank takes its part of the rows."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from ._collective import agreed

KEY = "P"


@dataclass
class Rows:
    """This rank's rows, as `gram` takes them, and the size of the whole."""

    rows: Any
    scale_bits: int | None
    n: int
    n_rows: int


def read(path: str, comm: MPI.Intracomm, scale_bits: int | None) -> Rows:
    """Real numbers [rows, columns], or uint64 limbs [rows, columns, limbs] over 2**scale_bits.  Collective.

    A .npy file is mapped, and each rank reads its rows; from a .npz file, key P (or the only one) and
    scale_bits, each rank reads all.

    Raises
    ------
    OSError, ValueError
        On every rank, naming the file, the key, and row and column.
    """
    with agreed(comm):
        array, where, scale_bits = _load(path, scale_bits)
        k = len(array)
        first, last = k * comm.rank // comm.size, k * (comm.rank + 1) // comm.size
        rows = np.array(array[first:last])
        _check_finite(rows, first, where)
    return Rows(rows, scale_bits, array.shape[1], k)


def _load(path: str, scale_bits: int | None) -> tuple[npt.NDArray[Any], str, int | None]:
    where = path
    try:
        if path.endswith(".npz"):
            with np.load(path, allow_pickle=False) as file:
                array, where, scale_bits = _member(file, path, scale_bits)
        else:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as exc:
        if exc.errno is None:
            raise ValueError(f"{path}: not a NumPy file: {exc}") from exc
        raise type(exc)(f"{path}: {exc.strerror}") from exc
    except (zipfile.BadZipFile, EOFError) as exc:
        raise ValueError(f"{path}: not a NumPy file: {exc}") from exc
    except ValueError as exc:
        raise exc if str(exc).startswith(path) else ValueError(f"{where}: not a NumPy file: {exc}") from exc
    _check_shape(array, where, scale_bits)
    return array, where, scale_bits


def _member(file: Any, path: str, scale_bits: int | None) -> tuple[npt.NDArray[Any], str, int | None]:
    keys = [key for key in file.files if key != "scale_bits"]
    key = KEY if KEY in keys else keys[0] if len(keys) == 1 else None
    if key is None:
        raise ValueError(f"{path}: key '{KEY}' is missing; there are {', '.join(keys) or 'none'}")
    where = f"{path}, key '{key}'"
    try:
        array = file[key]
        if scale_bits is None and "scale_bits" in file.files:
            where = f"{path}, key 'scale_bits'"
            scale_bits = int(file["scale_bits"])
    except (ValueError, TypeError, OverflowError) as exc:
        raise ValueError(f"{where}: {exc}") from exc
    return array, f"{path}, key '{key}'", scale_bits


def _check_shape(array: Any, where: str, scale_bits: int | None) -> None:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{where}: not one array")
    what = f"{array.dtype} of shape {array.shape}"
    if scale_bits is not None and not (array.dtype == np.uint64 and array.ndim == 3):
        raise ValueError(f"{where}: limbs must be uint64[rows, columns, limbs], not {what}")
    if scale_bits is None and not (array.dtype.kind in "fiu" and array.ndim == 2):
        hint = "; limbs need --scale-bits" if array.ndim == 3 and array.dtype == np.uint64 else ""
        raise ValueError(f"{where}: must be real numbers [rows, columns], not {what}{hint}")
    if 0 in array.shape:
        raise ValueError(f"{where}: empty, its shape is {array.shape}")


def _check_finite(rows: npt.NDArray[Any], first: int, where: str) -> None:
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
        what = "NaN" if np.isnan(rows[row, column]) else "infinite"
        raise ValueError(f"{where}: row {first + row}, column {column} is {what}")
