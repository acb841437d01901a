# SPDX-License-Identifier: MIT
"""The heat equation on a square, computed while the halo travels, and a picture of the end.

mpiexec -n 4 python -m pchan.examples.heat_picture [FILE.png | FILE.ppm]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan

Array = npt.NDArray[np.float64]


def initial(n: int) -> Array:
    """Hot disc and hot bar on a cold plate of n x n with a cold rim."""
    y, x = np.mgrid[0:n, 0:n] / (n - 1)
    u = 1.0 * ((x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.04) + 0.7 * ((abs(x - 0.75) < 0.05) & (abs(y - 0.5) < 0.35))
    u[[0, -1]] = u[:, [0, -1]] = 0.0
    return np.asarray(u)


def advance(u: Array, new: Array, rows: slice, cols: slice) -> None:
    """One explicit step of the cells at rows and cols, counted without the halo."""
    at = rows, cols
    around = u[:-2, 1:-1][at] + u[2:, 1:-1][at] + u[1:-1, :-2][at] + u[1:-1, 2:][at]
    new[1:-1, 1:-1][at] = 0.2 * u[1:-1, 1:-1][at] + 0.2 * around


def channel(cart: MPI.Cartcomm, u: Array) -> pchan.Channel:
    """Receives have the numbers 0 to 3: from north, south, west, east."""
    ch, neighbours = pchan.Channel(cart), [rank for axis in (0, 1) for rank in cart.Shift(axis, 1)]
    for rim, peer in zip((u[0, 1:-1], u[-1, 1:-1], u[1:-1, 0], u[1:-1, -1]), neighbours, strict=True):
        ch.recv_init(rim, peer)
    for edge, peer in zip((u[1, 1:-1], u[-2, 1:-1], u[1:-1, 1], u[1:-1, -2]), neighbours, strict=True):
        ch.send_init(edge, peer)
    ch.connect()
    return ch


def step(ch: pchan.Channel, u: Array, new: Array) -> None:
    """What needs no halo while it travels; then each side when its halo is there; the corners need two."""
    inside, first, last = slice(1, -1), slice(0, 1), slice(-1, None)
    ch.start()
    advance(u, new, inside, inside)
    while (i := ch.wait_any()) is not None:
        if i < 4:  # a receive, in the order of channel()
            strip = (first, last)[i % 2]
            advance(u, new, *((strip, inside) if i < 2 else (inside, strip)))
    for rows in (first, last):
        for cols in (first, last):
            advance(u, new, rows, cols)


def picture(path: str, u: Array) -> None:
    """By matplotlib; a .ppm is written by hand: black, red, yellow, white."""
    if path.endswith(".ppm"):
        colours = np.clip(3 * u[..., None] / max(u.max(), 1e-300) - np.arange(3), 0, 1)
        with open(path, "wb") as file:
            file.write(b"P6 %d %d 255\n" % u.shape[::-1] + (255 * colours).astype(np.uint8).tobytes())
    else:
        from matplotlib.image import imsave

        imsave(path, u, cmap="inferno")


def run(comm: MPI.Intracomm, n: int = 130, n_steps: int = 400) -> Any:
    """The whole plate after n_steps, on rank 0; None elsewhere.  Collective."""
    cart = comm.Create_cart(MPI.Compute_dims(comm.size, 2))
    cuts = [np.linspace(1, n - 1, d + 1).astype(int) for d in cart.dims]
    if min(np.diff(c).min() for c in cuts) < 2:
        raise ValueError(f"{n} x {n} is too small for {comm.size} ranks")
    mine = tuple(slice(c[k] - 1, c[k + 1] + 1) for c, k in zip(cuts, cart.coords, strict=True))
    u = [initial(n)[mine].copy() for _ in range(2)]
    with channel(cart, u[0]) as even, channel(cart, u[1]) as odd:
        for k in range(n_steps):
            step((even, odd)[k % 2], u[k % 2], u[1 - k % 2])
    parts = cart.gather((mine, u[n_steps % 2]))
    whole = None if parts is None else np.zeros((n, n))
    for where, part in parts or []:
        assert whole is not None
        whole[where][1:-1, 1:-1] = part[1:-1, 1:-1]
    cart.Free()
    return whole


if __name__ == "__main__":
    plate, name = run(MPI.COMM_WORLD), sys.argv[1] if len(sys.argv) > 1 else "heat.ppm"
    if plate is not None:
        picture(name, plate)
        print(f"{name}: heat left {plate.sum():.6f}")
