"""The costs that scale_model.py computes with, measured on emulated nodes of one rank; and its check."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import bench_qreduce
import numpy as np
import scale_model
from _measure import machine, pin
from mpi4py import MPI

BITS = 1024
REPETITIONS = 5


def cycles(comm: MPI.Intracomm, runner: Any) -> tuple[float, dict[str, float]]:
    """Least CPU seconds of a cycle, all ranks together, and that cycle's stages, all ranks' clocks."""
    best: tuple[float, dict[str, float]] = (np.inf, {})
    for repetition in range(REPETITIONS):
        cpu, _ = bench_qreduce.measure(comm, runner)
        stages = {name: comm.allreduce(seconds) for name, seconds in runner.stages().items()}
        if repetition:  # the first one touches memory
            best = min(best, (cpu, stages), key=lambda pair: pair[0])
    runner.check()
    runner.free()
    return best


def seconds_of(work: Any) -> float:
    best = np.inf
    for _ in range(REPETITIONS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def simple_costs(n_primes: int) -> dict[str, float]:
    """The sum of two elements' residues, as MPI_SUM adds them, and the copy of a byte."""
    n = 20_000
    a, b = np.ones((n, n_primes), np.uint32), np.ones((n, n_primes), np.uint32)
    big, copy = np.ones(1 << 26, np.uint8), np.zeros(1 << 26, np.uint8)
    added, copied = seconds_of(lambda: np.add(a, b, out=b)), seconds_of(lambda: np.copyto(copy, big))
    return {"sum_ns": 1e9 * added / n, "copy_byte_ns": 1e9 * copied / big.size}


def message_costs() -> dict[str, float]:
    """A message to send and one to receive, of 16 each way of 64 bytes: results/channel_2_ranks.json."""
    report = json.loads((scale_model.HERE / "results" / "channel_2_ranks.json").read_text())
    us = next(c["us"] for c in report["cells"] if (c["bytes"], c["pairs"]) == (64, 16))
    return {
        "mpi_message_ns": round(1e3 * us["raw_waitall"] / 16, 1),
        "slot_message_ns": round(1e3 * us["pchan_connected"] / 16, 1),
    }


def measure(file: Path, n: int = 400) -> int:
    comm = MPI.COMM_WORLD
    if comm.size != 2 or not pin(comm):
        raise SystemExit("--measure takes two ranks with a core each")
    case = bench_qreduce.Case(comm, n, BITS)
    upper, nodes = n * (n + 1) // 2, comm.size
    library = bench_qreduce.load_sdpb(comm)
    if library is None:
        raise SystemExit("--measure needs FLINT (libflint-dev)")
    _, ours = cycles(comm, bench_qreduce.Pchan(case, "residues"))
    _, wide = cycles(comm, bench_qreduce.Pchan(case, "restored"))
    mpi, _ = cycles(comm, bench_qreduce.Pchan(case, "mpi"))
    sdpb, _ = cycles(comm, bench_qreduce.Sdpb(case, library, 0))
    costs = simple_costs(case.basis.n_primes)
    costs |= {
        "accumulate_ns": 1e9 * ours["accumulate_s"] / (upper * (nodes - 1)),
        "restore_ns": 1e9 * ours["restore_s"] / upper,
        "restore_wide_ns": 1e9 * wide["restore_s"] / (upper * nodes),
        "add_wide_ns": 1e9 * wide["accumulate_s"] / (upper * (nodes - 1)),
        "sdpb_ns": 1e9 * sdpb / (upper * nodes),
        "scan_ns": bench_qreduce.scan_cost(comm, library),
    }
    rest = 1e9 * mpi / upper - costs["restore_ns"] - (nodes - 1) * costs["sum_ns"]
    costs["unpack_ns"] = max(0.0, rest) / nodes
    costs = {name: round(comm.bcast(cost), 4) for name, cost in costs.items()} | message_costs()
    costs |= {
        "word_bytes": 8 * case.basis.n_words,
        "integer_bytes": 8 * case.basis.n_limbs,
        "residue_bytes": 4 * case.basis.n_primes,
        "float_bytes": 12 + 8 * (-(-(BITS + 127) // 64) + 1),
    }
    facts = machine(comm, True)
    if comm.rank == 0:
        file.write_text(json.dumps({"bits": BITS, "n": n, "machine": facts, "costs": costs}, indent=1) + "\n")
        print("\n".join(f"{name:16} {cost:10.4g}" for name, cost in costs.items()))
    return 0


def check(file: Path) -> int:
    """CPU seconds of a rank, predicted and measured; the emulated network is a copy by one of two processors."""
    comm, costs = MPI.COMM_WORLD, json.loads(file.read_text())["costs"]
    byte = 1e-9 * costs["copy_byte_ns"]
    net = scale_model.Network(latency=0.0, overhead=0.2e-6, byte=2 * byte, local_byte=byte)
    if comm.rank == 0:
        print(f"{comm.size} emulated nodes of one rank, {BITS} bits: CPU seconds of a rank")
        print(f"{'n':>6} {'strategy':10}{'predicted':>11}{'measured':>10}{'ratio':>7}")
    for n in (100, 300, 1000):
        case = bench_qreduce.Case(comm, n, BITS)
        problem = scale_model.Problem(n, comm.size, 1)
        for name in bench_qreduce.STRATEGIES:
            spent = cycles(comm, bench_qreduce.Pchan(case, name))[0] / comm.size
            predicted = scale_model.STRATEGIES[name](problem, costs, net).total
            if comm.rank == 0:
                print(f"{n:6} {name:10}{predicted:11.4f}{spent:10.4f}{predicted / spent:7.2f}", flush=True)
    return 0
