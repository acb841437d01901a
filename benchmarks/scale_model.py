"""Predicts a cycle of QReduceScatter, connect, and a halo exchange on 2 to 4,096 nodes.

    python benchmarks/scale_model.py [--n 5485 9437] [--ranks-per-node 128] [--plot FILE]
    mpiexec -n 4 python benchmarks/scale_model.py --check       # against emulated nodes, on this machine

Computation costs are nanoseconds per element, measured here (results/scale_costs.json; --measure writes it, under
mpiexec -n 2). The network is LogGP (A. Alexandrov et al., 1995). README.md in this folder lists the assumptions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
COSTS = HERE / "results" / "scale_costs.json"
PUBLISHED_N = 5485
NODES = [2**k for k in range(1, 13)]


class Network(NamedTuple):
    """LogGP, seconds. A node's ranks share its link."""

    latency: float = 1.5e-6
    overhead: float = 0.5e-6  # of a processor, at each end of a message
    byte: float = 1 / 25e9  # a link of 200 Gbit/s
    local_byte: float = 1 / 5e9  # a copy within a node, by one rank


class Problem(NamedTuple):
    n: int
    nodes: int
    ranks: int  # per node

    @property
    def elements(self) -> int:
        return self.n * (self.n + 1) // 2

    @property
    def owned(self) -> float:
        """Elements per owner."""
        return self.elements / (self.nodes * self.ranks)

    @property
    def foreign(self) -> float:
        """Elements that a rank sends to owners on other nodes, and as many that it receives."""
        return self.owned * (self.nodes - 1)


class Cycle(NamedTuple):
    """Seconds of the slowest rank, by what takes them; nothing is assumed to overlap."""

    compute: float
    wire: float
    messages: float

    @property
    def total(self) -> float:
        return sum(self)


Costs = dict[str, float]  # nanoseconds an element, and bytes of an element


def residues(p: Problem, c: Costs, net: Network) -> Cycle:
    compute = p.foreign * c["accumulate_ns"] + p.owned * c["restore_ns"]
    return _pairwise(p, compute, c["word_bytes"], net)


def restored(p: Problem, c: Costs, net: Network) -> Cycle:
    """Every node restores all that it holds; its ranks share the work."""
    compute = p.elements / p.ranks * c["restore_wide_ns"] + p.foreign * c["add_wide_ns"]
    return _pairwise(p, compute, c["integer_bytes"], net)


def as_sdpb(p: Problem, c: Costs, net: Network) -> Cycle:
    """Like restored, with FLINT and numbers serialized one by one (c/exchange_sdpb.c)."""
    compute = p.elements / p.ranks * c["sdpb_ns"]
    return _pairwise(p, compute, c["float_bytes"], net)


def ring(p: Problem, c: Costs, net: Network, scan: bool = False) -> Cycle:
    """Over all ranks: each step waits for the one before; one of a node's ranks adds the node's part."""
    steps = p.nodes * p.ranks - 1
    compute = p.elements / p.ranks * (c["restore_wide_ns"] + c["add_wide_ns"])
    compute += steps * p.elements * c["scan_ns"] if scan else 0.0
    part = p.owned * c["integer_bytes"]
    slowest = part * max(net.byte, net.local_byte if p.ranks > 1 else 0.0)
    return Cycle(compute * 1e-9, steps * slowest, steps * (net.latency + 2 * net.overhead))


def ring_scan(p: Problem, c: Costs, net: Network) -> Cycle:
    return ring(p, c, net, scan=True)


def mpi(p: Problem, c: Costs, net: Network) -> Cycle:
    """MPI_Reduce_scatter, pairwise: every rank sends every other one its part of residues, zeros included."""
    others = p.nodes * p.ranks - 1
    compute = p.owned * others * c["sum_ns"] + p.owned * c["restore_ns"] + p.elements / p.ranks * c["unpack_ns"]
    node_bytes = p.ranks * p.owned * p.ranks * (p.nodes - 1) * c["residue_bytes"]
    local = p.owned * (p.ranks - 1) * c["residue_bytes"] * net.local_byte
    return Cycle(compute * 1e-9, node_bytes * net.byte + local, others * (net.latency + 2 * net.overhead))


def gather(p: Problem, c: Costs, net: Network) -> Cycle:
    """All words to rank 0, which adds them; a reference, not made for speed."""
    words = p.elements * (p.nodes - 1)
    compute = words * c["accumulate_ns"] + p.owned * c["restore_ns"]
    wire = (words + p.elements * (1 - 1 / p.nodes)) * c["word_bytes"] * net.byte
    return Cycle(compute * 1e-9, wire, 2 * (p.nodes + p.nodes * p.ranks) * net.overhead)


def _pairwise(p: Problem, compute_ns: float, element_bytes: float, net: Network) -> Cycle:
    """Each rank exchanges with as many ranks as there are other nodes, in about eight rounds."""
    rounds = 8 * (p.nodes - 1)
    node_bytes = p.ranks * p.foreign * element_bytes
    return Cycle(compute_ns * 1e-9, node_bytes * net.byte, rounds * 2 * net.overhead + net.latency)


STRATEGIES: dict[str, Callable[[Problem, Costs, Network], Cycle]] = {
    "residues": residues,
    "restored": restored,
    "as SDPB": as_sdpb,
    "ring": ring,
    "ring_scan": ring_scan,
    "mpi": mpi,
    "gather": gather,
}


# ---- connect, and a halo of 26 neighbours ----


def connect_seconds(ranks: int, per_node: int, net: Network, neighbours: int = 26) -> float:
    """The sum of docs/connect.md, for one send and one receive a neighbour."""
    step, local_step = net.latency + 2 * net.overhead, 1e-6
    d, d_node = math.ceil(math.log2(max(ranks, 2))), math.ceil(math.log2(max(per_node, 2)))
    k = neighbours
    tables = 4 * k * net.overhead + 2 * net.latency + 2 * k * 0.2e-6
    replies = 4 * k * net.overhead + net.latency + 2 * k * 0.2e-6
    memory = 30e-6 + 2 * k * 0.5e-6 + k * 1e-6
    return tables + replies + memory + 4 * d * step + 4 * d_node * local_step


def off_node_neighbours(ranks: int, per_node: int) -> float:
    """Of 26, how many are on other nodes, on average: nodes are blocks of a three-dimensional grid of ranks."""
    if ranks <= per_node:
        return 0.0
    sides = _near_cube(per_node)
    off = 0
    for place in itertools.product(*map(range, sides)):
        for d in itertools.product((-1, 0, 1), repeat=3):
            inside = all(0 <= x + dx < side for x, dx, side in zip(place, d, sides, strict=True))
            off += any(d) and not inside
    return off / per_node


def _near_cube(n: int) -> tuple[int, int, int]:
    shapes = [
        (a, b, n // (a * b))
        for a in range(1, n + 1)
        if n % a == 0
        for b in range(1, n // a + 1)
        if n // a % b == 0
    ]
    return min(shapes, key=lambda s: max(s) - min(s))


def halo_seconds(ranks: int, per_node: int, c: Costs, net: Network, cells: int = 16) -> tuple[float, float]:
    """A cycle by MPI's persistent requests, and connected: 26 messages, in all the surface of cells**3 float64."""
    off = off_node_neighbours(ranks, per_node)
    nbytes = 8 * ((cells + 2) ** 3 - cells**3)
    shared_link = min(per_node, ranks) * nbytes * off / 26 * net.byte
    wire = (net.latency if off else 0.0) + shared_link
    plain = 26 * c["mpi_message_ns"] * 1e-9 + wire
    on_node = (26 - off) * c["slot_message_ns"] * 1e-9 + nbytes * (26 - off) / 26 * net.local_byte
    return plain, on_node + off * 2 * net.overhead + wire


# ---- what it prints ----

Table = dict[int, dict[str, Cycle]]  # by nodes and strategy


def table(n: int, per_node: int, c: Costs, net: Network) -> Table:
    rows = {}
    for nodes in [*NODES[:3], 12, *NODES[3:]]:
        p = Problem(n, nodes, per_node)
        rows[nodes] = {name: predict(p, c, net) for name, predict in STRATEGIES.items()}
    return rows


def show(n: int, bits: int, per_node: int, rows: Table) -> None:
    print(f"\nQ of n = {n} at {bits} bits, {per_node} ranks a node: seconds of a cycle")
    print(f"{'nodes':>6}" + "".join(f"{name:>11}" for name in STRATEGIES))
    for nodes, row in rows.items():
        print(f"{nodes:6}" + "".join(f"{cycle.total:11.3g}" for cycle in row.values()))
    parts = ", ".join(
        f"{part} {seconds:.3g}" for part, seconds in zip(Cycle._fields, rows[12]["residues"], strict=True)
    )
    print(f"residues on 12 nodes: {parts}")


def show_others(per_node: int, c: Costs, net: Network) -> None:
    print(f"\nconnect with 26 neighbours, and a halo of 16 x 16 x 16 cells, {per_node} ranks a node: microseconds")
    print(f"{'nodes':>6}{'connect':>9}{'off node':>10}{'MPI':>8}{'connected':>11}")
    for nodes in NODES:
        plain, connected = halo_seconds(nodes * per_node, per_node, c, net)
        off = off_node_neighbours(nodes * per_node, per_node)
        seconds = connect_seconds(nodes * per_node, per_node, net)
        print(f"{nodes:6}{1e6 * seconds:9.0f}{off:10.1f}{1e6 * plain:8.1f}{1e6 * connected:11.1f}")


def plot(tables: dict[int, Table], per_node: int, bits: int, c: Costs, net: Network, file: Path) -> None:
    """A panel for each n; connect and halo in the last one."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(tables) + 5, 5), layout="constrained")
    *panels, others = figure.subplots(1, len(tables) + 1)
    for axes, (n, rows) in zip(panels, tables.items(), strict=True):
        for marker, name in zip("osD^vPx", STRATEGIES, strict=True):
            axes.loglog(list(rows), [row[name].total for row in rows.values()], marker=marker, ms=4, label=name)
        if n == PUBLISHED_N:
            axes.axhspan(300, 600, color="gray", alpha=0.2)
            axes.annotate("SDPB's ring, published (12 nodes)", (12, 420), fontsize=7, va="center")
            axes.plot(12, 10, "k*", label="SDPB's exchange, published")
        axes.set(ylabel="seconds of a cycle", title=f"Q, n = {n}, {bits} bits")
    halo = [halo_seconds(nodes * per_node, per_node, c, net) for nodes in NODES]
    lines = {
        "connect, 26 neighbours": [connect_seconds(nodes * per_node, per_node, net) for nodes in NODES],
        "halo of 16³ cells, MPI's requests": [plain for plain, _ in halo],
        "halo of 16³ cells, connected": [connected for _, connected in halo],
    }
    for marker, (label, seconds) in zip("osD", lines.items(), strict=True):
        others.loglog(NODES, [1e6 * x for x in seconds], marker=marker, ms=4, label=label)
    others.set(ylabel="microseconds", title="connect, and a cycle of a halo")
    for axes in (*panels, others):
        axes.set(xlabel=f"nodes of {per_node} ranks")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=7)
    figure.savefig(file, dpi=150)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[PUBLISHED_N, 9437])
    parser.add_argument("--ranks-per-node", type=int, default=128)
    parser.add_argument("--latency", type=float, default=1.5, help="microseconds")
    parser.add_argument("--rate", type=float, default=200, help="Gbit/s of a node's link")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--measure", action="store_true", help="the costs, on this machine (mpiexec -n 2)")
    parser.add_argument("--check", action="store_true", help="predictions against measurements (mpiexec -n 2|4)")
    options = parser.parse_args(argv)
    if options.measure or options.check:
        import _scale_costs

        return _scale_costs.measure(COSTS) if options.measure else _scale_costs.check(COSTS)
    measured = json.loads(COSTS.read_text())
    c: Costs = measured["costs"]
    bits = measured["bits"]
    net = Network(latency=1e-6 * options.latency, byte=8e-9 / options.rate)
    tables = {n: table(n, options.ranks_per_node, c, net) for n in options.n}
    for n, rows in tables.items():
        show(n, bits, options.ranks_per_node, rows)
    if options.plot:
        plot(tables, options.ranks_per_node, bits, c, net, options.plot)
    print(
        "\nPublished for SDPB, n = 5485 at 1024 bits on 12 nodes of 128 ranks: "
        "ring 5 to 10 minutes, exchange by pairs about 10 s an iteration."
    )
    show_others(options.ranks_per_node, c, net)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
