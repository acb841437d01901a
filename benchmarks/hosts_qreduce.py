"""QReduceScatter between two hosts over a link of known rate: how near to bytes / rate it comes.

    python benchmarks/hosts_qreduce.py [--n 1000] [--bits 1024] [--rate 100] [--json FILE]      (as root)

The hosts are namespaces on this machine (tests/hosts/hosts.py), one rank each; tc limits each host's link to
--rate Mbit/s, either way. A cycle moves half of the matrix each way at the same time. The rate is that of Ethernet
frames, so TCP/IP headers (about 5 %) are part of what is measured. For comparison: a plain MPI exchange of as many
bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "hosts"), str(ROOT / "benchmarks")]


def inside(n, bits):
    """On each of the hosts: seconds of a cycle and of a plain exchange, bytes."""
    import time

    import numpy as np
    from _measure import machine
    from mpi4py import MPI

    import pchan

    comm = MPI.COMM_WORLD
    basis = pchan.PrimeBasis(2 * bits + 1)
    tile = basis.residues(np.ones((1, 256), dtype=object))
    with pchan.QReduceScatter(comm, n, basis) as q:
        assert q.n_nodes == comm.size == 2, "the ranks are not on two hosts"

        def cycle():
            for i in range(n):
                for j in range(i, n, 256):
                    q.add(i, j, tile[:, :, : n - j])
            comm.Barrier()
            begin = time.perf_counter()
            q.start()
            q.wait()
            spent = time.perf_counter() - begin
            assert np.all(q.limbs[:, 0] == 2)
            return comm.allreduce(spent, MPI.MAX)

        times = [cycle() for _ in range(3)]
        sent = comm.allreduce(q.stats["bytes_sent"], MPI.MAX)
    out, into = np.ones(sent, dtype=np.uint8), np.empty(sent, dtype=np.uint8)
    plain = []
    for _ in range(3):
        comm.Barrier()
        begin = time.perf_counter()
        comm.Sendrecv(out, 1 - comm.rank, 0, into, 1 - comm.rank, 0)
        plain.append(comm.allreduce(time.perf_counter() - begin, MPI.MAX))
    facts = machine(comm, False)
    if comm.rank == 0:
        print(json.dumps({"machine": facts, "bytes": sent, "cycle_s": min(times[1:]), "plain_s": min(plain[1:])}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--bits", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=100, help="Mbit/s (default 100)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit", type=float, default=300, help="seconds after which the job is ended")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options.n, options.bits)

    import hosts

    rate = f"{options.rate:g}mbit"
    if why := hosts.why_not(rate=rate):
        sys.exit(f"no hosts here: {why}")
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--inside",
        f"--n={options.n}",
        f"--bits={options.bits}",
    ]
    with hosts.Hosts(2, rate=rate) as two:
        job = two.run((1, 1), *command, timeout=options.limit)
    if job.returncode:
        sys.exit(job.output)
    facts = {"n": options.n, "bits": options.bits, "rate_mbit": options.rate, **json.loads(job.output)}
    facts["least_s"] = facts["bytes"] * 8 / (options.rate * 1e6)
    facts["ratio"] = facts["cycle_s"] / facts["least_s"]
    print(
        f"{facts['bytes'] / 1e6:.1f} MB each way at {options.rate:g} Mbit/s: at least {facts['least_s']:.3f} s; "
        f"a cycle {facts['cycle_s']:.3f} s, {facts['ratio']:.3f} times that; "
        f"plain MPI_Sendrecv {facts['plain_s']:.3f} s"
    )
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
