"""Prints fingerprints of a distributed Q that must not depend on ranks and hosts.

QReduceScatter: each rank adds its share of 24 numbered contributions. gram: each rank passes its share of the rows.
"""

import hashlib

import numpy as np
from mpi4py import MPI
from oracle import random_ints, symmetric  # tests/oracle.py

import pchan
from pchan.qreduce import STRATEGIES

comm = MPI.COMM_WORLD


def fingerprint(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
    return digest.hexdigest()[:16]


def reduced(strategy):
    """A second cycle with other values must leave no trace of the first."""
    n, basis, parts = 13, pchan.PrimeBasis(250), 24
    found = []
    with pchan.QReduceScatter(comm, n, basis, strategy=strategy, buffer_bytes=2000) as q:
        for cycle in range(2):
            total = np.zeros((n, n), dtype=object)
            for part in range(parts):
                ints = random_ints(np.random.default_rng(100 * cycle + part), 245, (n, n))
                total += ints
                if part % comm.size == comm.rank:
                    q.add(0, 0, basis.residues(ints))
            q.start()
            q.wait()
            matrix = q.gather()
            if matrix is not None:
                assert np.array_equal(matrix, symmetric(total)), f"{strategy}, cycle {cycle}: wrong sums"
                found.append(matrix.tolist())
    return fingerprint(found)


def gram():
    rng = np.random.default_rng(5)
    rows = [
        [float(x) * 2.0 ** int(e) for x, e in zip(rng.normal(size=9), rng.integers(-40, 40, 9), strict=True)]
        for _ in range(30)
    ]
    g = pchan.gram(rows[comm.rank :: comm.size], comm, precision=300)
    matrix = g.gather()
    condition = g.cond_number()
    if matrix is None:
        return None
    return fingerprint([x._mpf_ for x in matrix.flat], [x._mpf_ for x in g.norms], condition._mpf_)


lines = [f"digest {strategy} {reduced(strategy)}" for strategy in STRATEGIES] + [f"digest gram {gram()}"]
lines.append(f"hosts {len(set(comm.allgather(MPI.Get_processor_name())))}")
if comm.rank == 0:
    print("\n".join(lines))
