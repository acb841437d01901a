# SPDX-License-Identifier: MIT
"""gram against python-flint and gmpy2, its cost from small to large n, and SDPB's folders.

    mpiexec -n 1|2 python -m pchan bench gram [--full | --quick] [--sdpb DIR] [--json FILE] [--plot FILE]

Baselines run in the same job on rank 0 (one core) while the others wait; results are compared bit by
bit.  Times are seconds of the slowest rank, least of several rounds, plan set up before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _report import Parser, Run, bar
from mpi4py import MPI

import pchan
from pchan import sdpb

COMM = MPI.COMM_WORLD
STAGES = ("convert", "norms", "quantize", "residues", "syrk", "add", "pack", "exchange", "accumulate", "restore")


def random_limbs(k: int, n: int, bits: int, seed: int) -> Any:
    """uint64[k, n, limbs]: integers of `bits` bits, both signs."""
    limbs = np.random.default_rng(seed).integers(0, 2**64, (k, n, bits // 64 + 1), dtype=np.uint64)
    limbs[:, :, -1] = np.uint64(0) - (limbs[:, :, -1] & np.uint64(1))  # sign
    return limbs


def seconds(work: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Least time of the slowest rank, and the last value."""
    best, value = float("inf"), None
    for _ in range(repeat):
        COMM.Barrier()
        start = time.perf_counter()
        value = work()
        best = min(best, COMM.allreduce(time.perf_counter() - start, op=MPI.MAX))
    return best, value


def on_rank_0(work: Callable[[], Any]) -> tuple[float, Any]:
    """The time of rank 0 alone; the others sleep, so that they take no part of the machine."""
    value, taken = None, 0.0
    if COMM.rank == 0:
        start = time.perf_counter()
        value = work()
        taken = time.perf_counter() - start
    request = COMM.Ibarrier()
    while not request.Test():
        time.sleep(0.01)
    return COMM.bcast(taken), value


def bytes_used() -> int:
    """Of all ranks, shared pages counted once (Linux)."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return COMM.allreduce(1024 * int(text.split("Pss:")[1].split()[0]))


def flint_product(ints: list[list[int]]) -> Callable[[], Any] | None:
    try:
        import flint
    except ImportError:
        return None
    matrix = flint.fmpz_mat(ints)
    return lambda: matrix.transpose() * matrix


def gmpy2_loops(ints: list[list[int]]) -> Callable[[], Any] | None:
    try:
        from gmpy2 import mpz
    except ImportError:
        return None
    columns = [[mpz(row[j]) for row in ints] for j in range(len(ints[0]))]

    def work() -> list[Any]:
        upper = []
        for i, left in enumerate(columns):
            for right in columns[i:]:
                total = mpz(0)
                for a, b in zip(left, right, strict=True):
                    total += a * b
                upper.append(total)
        return upper

    return work


def against_baselines(n: int, k: int, bits: int, rounds: int) -> dict[str, Any]:
    """Python ints in, as a user has them; normalize=False, so that all compute the same integers.

    Every round measures everything once, so that a slow moment meets all alike.
    """
    ints = pchan.limbs_to_ints(random_limbs(k, n, bits, seed=1)).tolist()
    mine = ints[COMM.rank :: COMM.size]
    makers = {"flint": flint_product, "gmpy2": gmpy2_loops}
    works = {name: make(ints) if COMM.rank == 0 else None for name, make in makers.items()}
    names = [name for name, work in works.items() if COMM.bcast(work is not None)]
    best: dict[str, float] = {}
    exact: Any = None
    plans = {
        "pchan": pchan.GramPlan(COMM, n, bits, normalize=False),
        "pchan_normalized": pchan.GramPlan(COMM, n, bits),
    }
    for _ in range(rounds):
        for name, plan in plans.items():
            taken, g = seconds(lambda plan=plan: plan(mine), 3)
            best[name] = min(taken, best.get(name, taken))
            exact = g if name == "pchan" else exact
        for name in names:
            taken, value = on_rank_0(works[name] or (lambda: None))
            best[name] = min(taken, best.get(name, taken))
            check_equal(name, value, exact)
    for plan in plans.values():
        plan.free()
    case: dict[str, Any] = {"n": n, "k": k, "bits": bits} | {f"{name}_s": taken for name, taken in best.items()}
    case |= {f"{name}_over_pchan": best[name] / best["pchan"] for name in names}
    return case | {"stages_s": stages(exact)}


def stages(g: pchan.Gram) -> dict[str, float]:
    return {stage: round(g.stats.get(f"{stage}_s", 0.0), 5) for stage in STAGES}


def check_equal(name: str, value: Any, g: pchan.Gram) -> None:
    """Upper triangle or matrix of another library against ours."""
    matrix = g.gather()
    if matrix is None:
        return
    upper = matrix[np.triu_indices(g.n)].tolist()
    theirs = (
        value
        if isinstance(value, list)
        else [int(value[i, j]) for i, j in zip(*np.triu_indices(g.n), strict=True)]
    )
    if theirs != upper:
        raise SystemExit(f"{name} and pchan differ")


def scaling(n: int, k: int, bits: int, repeat: int) -> dict[str, Any]:
    """Limbs in, normalised, as a solver has them."""
    limbs = random_limbs(k // COMM.size, n, bits, seed=COMM.rank)
    with pchan.GramPlan(COMM, n, bits) as plan:
        best, g = seconds(lambda: plan(limbs, scale_bits=0), repeat)
        used = bytes_used()
        estimate = pchan.GramPlan.estimate(n, bits, k, ranks=COMM.size)
    if not g.check():
        raise SystemExit("the check of Q failed")
    return {
        "n": n,
        "k": k,
        "bits": bits,
        "pchan_s": best,
        "ns_per_ijk": 1e9 * best / (n * (n + 1) / 2 * k),
        "bytes_used": used,
        "bytes_estimated": estimate.total,
        "passes": g.stats["n_passes"],
        "stages_s": stages(g),
    }


def sdpb_case(folder: Path, precision: int) -> dict[str, Any]:
    def work() -> Any:
        p = sdpb.read(folder, COMM, precision)
        return p, pchan.gram(p.rows, COMM, precision)

    best, (p, g) = seconds(work, 3)
    return {"case": folder.name, "rows": p.n_rows, "n": p.n, "precision": precision, "read_and_gram_s": best}


def report(results: dict[str, Any]) -> str:
    lines = []
    for c in results["baselines"]:
        lines.append(f"n = {c['n']}, K = {c['k']}, {c['bits']}-bit integers")
        lines.append(f"  pchan {c['pchan_s']:.3f} s, normalised {c['pchan_normalized_s']:.3f} s")
        for name, what in (("flint", "python-flint fmpz_mat, one core"), ("gmpy2", "gmpy2 loops, one core")):
            if f"{name}_s" in c:
                lines.append(f"  {what} {c[f'{name}_s']:.3f} s: {c[f'{name}_over_pchan']:.1f} times pchan's")
    lines.append("       n      K   bits   seconds   ns per (i<=j, k)   GiB used (estimate without P)   passes")
    for c in results["scaling"]:
        lines.append(
            f"  {c['n']:6} {c['k']:6} {c['bits']:6} {c['pchan_s']:9.3f} {c['ns_per_ijk']:18.2f} "
            f"{c['bytes_used'] / 2**30:10.2f} {c['bytes_estimated'] / 2**30:14.2f} {c['passes']:14}"
        )
    for c in results["sdpb"]:
        lines.append(
            f"  SDPB {c['case']}: P {c['rows']} x {c['n']} at {c['precision']} bits, reading and gram "
            f"{c['read_and_gram_s']:.3f} s"
        )
    return "\n".join(lines)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser("gram", __doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="up to n = 1500, K = 3000: minutes, 4 GiB")
    size.add_argument("--quick", action="store_true", help="small sizes only: seconds")
    parser.add_argument("--sdpb", type=Path, metavar="DIR", help="folder of SDPB folders")
    options = parser.parse(argv)
    if options.sdpb and not options.sdpb.is_dir():
        parser.error(f"no such folder: {options.sdpb}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    run = Run(COMM, "gram", options, pinned=False)
    bits, shapes = 1024, [(200, 400), (400, 800)]
    if options.quick:
        bits, shapes = 256, [(20, 30)]
    if options.full:
        shapes += [(800, 1600), (1500, 3000)]
    folders = [f for f in sorted(options.sdpb.iterdir()) if f.is_dir()] if options.sdpb else []
    results: dict[str, Any] = {"baselines": [], "scaling": [], "sdpb": []}
    with bar("bench gram", COMM.rank == 0) as progress:

        def done() -> None:
            if progress:
                progress(sum(map(len, results.values())), 1 + len(shapes) + len(folders))

        results["baselines"].append(against_baselines(*shapes[0], bits, 1 if options.quick else 4))
        for n, k in shapes:
            done()
            results["scaling"].append(scaling(n, k, bits, 5 if n <= 400 else 1))
        for folder in folders:
            done()
            results["sdpb"].append(sdpb_case(folder, 768))
    if COMM.rank == 0:
        print(report(results))
    run.finish(results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
