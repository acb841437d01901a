"""Times QReduceScatter: its strategies side by side, and beside mpi4py with gmpy2 and SDPB's own way of exchange.

    mpiexec -n 2|4|8 python -m pchan bench qreduce [--full] [--n 300,1000] [--bits 1024] [--json FILE]

Every rank is a node of its own (node_comm=COMM_SELF). Figures are the CPU time of one cycle summed over the ranks,
because ranks may outnumber cores, and the time on the clock of the slowest rank; the least of a few cycles each;
competitors take turns. "bits" is SDPB's precision N: the integers have 2 N + 1 bits. `--full` takes minutes.
The exchange as SDPB does it (c/exchange_sdpb.c) is measured where mpicc finds FLINT.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from operator import mul
from pathlib import Path

import numpy as np
from _report import Parser, Run, bar
from mpi4py import MPI

import pchan

STRATEGIES = ("residues", "restored", "ring", "ring_scan", "mpi")
SLOW = ("mpi4py+gmpy2", "sdpb pairwise", "sdpb ring")  # seconds a cycle where n is large: one cycle only
HERE = Path(__file__).resolve().parent
BLOCK = 32  # rows and columns of the tile that is added everywhere
GIB = 1 << 30

# at 1024 bits: competitor, least ratio of its CPU time to that of "residues", number of ranks
GOALS = (
    ("restored", 2, 4),
    ("ring", 2, 4),
    ("sdpb pairwise", 4, 4),
    ("sdpb ring", 10, 8),
    ("mpi4py+gmpy2", 20, 4),
)


class Case:
    """One n and number of bits: the same contribution of every rank, for all competitors."""

    def __init__(self, comm, n, precision):
        self.comm, self.n = comm, n
        self.basis = pchan.PrimeBasis(2 * precision + 1)
        rng = np.random.default_rng(1)
        bits = 2 * precision - 8
        self.ints = np.array(
            [
                [int.from_bytes(rng.bytes(bits // 8), "little") - 2 ** (bits - 1) for _ in range(BLOCK)]
                for _ in range(BLOCK)
            ],
            dtype=object,
        )
        self.tile = self.basis.residues(self.ints)
        self._by_prime = None

    def residues_by_prime(self):
        """float64 [n_primes][elements], canonical: the window of the exchange as SDPB does it. Made once."""
        if self._by_prime is None:
            i, j = np.triu_indices(self.n)
            canonical = self.tile % self.basis.primes.astype(float)[:, None, None]
            self._by_prime = np.ascontiguousarray(canonical[:, i % BLOCK, j % BLOCK])
        return self._by_prime

    def value(self, i, j):
        return self.comm.size * self.ints[i % BLOCK, j % BLOCK]


class Pchan:
    def __init__(self, case, strategy):
        self.case, self.name = case, strategy
        self.q = pchan.QReduceScatter(case.comm, case.n, case.basis, node_comm=MPI.COMM_SELF, strategy=strategy)
        self.bytes_held = self.q.stats["bytes_held"] + self.q.limbs.nbytes

    def prepare(self):
        case = self.case
        for i in range(0, case.n, BLOCK):
            for j in range(i, case.n, BLOCK):
                self.q.add(i, j, case.tile[:, : case.n - i, : case.n - j])

    def run(self):
        self.q.start()
        self.q.wait()

    def check(self):
        for k in np.linspace(0, len(self.q.rows) - 1, 20, dtype=int):
            got = pchan.limbs_to_ints(self.q.limbs[k : k + 1])[0]
            assert got == self.case.value(self.q.rows[k], self.q.cols[k]), self.name

    def stages(self):
        return {k: v for k, v in self.q.stats.items() if k.endswith("_s")}

    def free(self):
        self.q.free()


def owned(comm, n):
    """Upper elements by owner, as Elemental deals them: rows, cols, counts."""
    rows = next(r for r in range(1, comm.size + 1) if comm.size % r == 0 and r >= int(comm.size**0.5))
    i, j = np.triu_indices(n)
    owner = i % rows + j % (comm.size // rows) * rows
    order = np.argsort(owner, kind="stable")
    return i[order], j[order], np.bincount(owner, minlength=comm.size), rows


class Mpi4py:
    """What one does with mpi4py and gmpy2: Reduce_scatter of uint32 residues, then CRT of each own element."""

    name = "mpi4py+gmpy2"

    def __init__(self, case):
        import gmpy2

        self.case = case
        i, j, counts, _ = owned(case.comm, case.n)
        self.primes = case.basis.primes.astype(np.int64)
        modulus = gmpy2.mpz(1)
        for p in self.primes.tolist():
            modulus *= p
        self.modulus = modulus
        self.cofactors = [modulus // p for p in self.primes.tolist()]
        self.inverses = np.array(
            [int(gmpy2.invert(c % p, p)) for c, p in zip(self.cofactors, self.primes.tolist(), strict=True)]
        )
        canonical = (case.tile.astype(np.int64) % self.primes[:, None, None]).astype(np.uint32)
        self.send = np.ascontiguousarray(canonical[:, i % BLOCK, j % BLOCK].T)
        self.counts = counts * len(self.primes)
        self.receive = np.empty((counts[case.comm.rank], len(self.primes)), dtype=np.uint32)
        first = counts[: case.comm.rank].sum()
        mine = slice(first, first + counts[case.comm.rank])
        self.rows, self.cols = i[mine], j[mine]
        self.bytes_held = self.send.nbytes + 2 * self.receive.nbytes

    def prepare(self):
        pass

    def run(self):
        self.case.comm.Reduce_scatter(self.send, self.receive, self.counts, MPI.SUM)
        modulus, half, cofactors = self.modulus, self.modulus // 2, self.cofactors
        self.result = []
        for first in range(0, len(self.receive), 4096):
            weighed = self.receive[first : first + 4096] * self.inverses % self.primes
            for row in weighed.tolist():
                x = sum(map(mul, cofactors, row)) % modulus
                self.result.append(x - modulus if x > half else x)

    def check(self):
        for k in np.linspace(0, len(self.result) - 1, 20, dtype=int):
            assert self.result[k] == self.case.value(self.rows[k], self.cols[k])

    def stages(self):
        return {}

    def free(self):
        pass


class Sdpb:
    """c/exchange_sdpb.c: FLINT's CRT, GMP floats serialized and added one by one."""

    def __init__(self, case, library, ring):
        self.case, self.library, self.ring = case, library, ring
        self.name = "sdpb ring" if ring else "sdpb pairwise"
        primes, self.residues = case.basis.primes, case.residues_by_prime()
        self.rows, self.cols, counts, grid_rows = owned(case.comm, case.n)
        first = counts[: case.comm.rank].sum()
        mine = slice(first, first + counts[case.comm.rank])
        self.rows, self.cols = self.rows[mine], self.cols[mine]
        self.x = library.exchange_create(
            ctypes.c_int(case.comm.handle & 0xFFFFFFFF), case.n, len(primes), primes.ctypes, case.basis.bits // 2,
            grid_rows, self.residues.ctypes, ring,
        )  # fmt: skip
        self.bytes_held = int(library.exchange_bytes(self.x, ring))

    def prepare(self):
        pass

    def run(self):
        (self.library.exchange_ring if self.ring else self.library.exchange_pairwise)(self.x)

    def check(self):
        for k in np.linspace(0, len(self.rows) - 1, 5, dtype=int):
            exponent = ctypes.c_long()
            mantissa = self.library.exchange_result(self.x, self.ring, int(k), ctypes.byref(exponent))
            want = self.case.value(self.rows[k], self.cols[k])
            shift = exponent.value - 60
            got = int(mantissa * 2.0**60) << max(shift, 0) >> max(-shift, 0)
            assert abs(got - want) <= abs(want) // 10**12 + 1, (self.name, got, want)

    def stages(self):
        return {}

    def free(self):
        self.library.exchange_destroy(self.x, self.ring)


def load_sdpb(comm):
    """The C library, built by rank 0; None where there is no FLINT or MPI_Comm is no int."""
    path = None
    if comm.rank == 0 and MPI._sizeof(MPI.Comm) == 4 and (mpicc := shutil.which("mpicc")):
        target = Path(tempfile.mkdtemp(), "exchange_sdpb.so")
        source = HERE / "c" / "exchange_sdpb.c"
        command = [mpicc, "-O3", "-march=native", "-shared", "-fPIC", source, "-lflint", "-lgmp", "-o", target]
        built = subprocess.run(command, capture_output=True, text=True)
        path = str(target) if built.returncode == 0 else None
    path = comm.bcast(path)
    if path is None:
        return None
    library = ctypes.CDLL(path)
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(Path(path).parent)
    pointer, integer, long = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
    library.exchange_create.restype = pointer
    library.exchange_create.argtypes = [integer, long, integer, pointer, integer, integer, pointer, integer]
    for name, arguments, result in [
        ("exchange_destroy", [integer], None),
        ("exchange_bytes", [integer], ctypes.c_double),
        ("exchange_pairwise", [], None),
        ("exchange_ring", [], None),
        ("exchange_result", [integer, long, pointer], ctypes.c_double),
        ("exchange_scan", [integer], long),
    ]:
        function = getattr(library, name)
        function.argtypes, function.restype = [pointer, *arguments], result
    return library


def measure(comm, runner):
    """CPU seconds summed over ranks, and seconds on the clock of the slowest rank, of one cycle."""
    runner.prepare()
    comm.Barrier()
    cpu, wall = time.process_time(), time.perf_counter()
    runner.run()
    spent = time.process_time() - cpu
    wall = time.perf_counter() - wall
    comm.Barrier()
    return comm.allreduce(spent), comm.allreduce(wall, MPI.MAX)


def run_case(comm, n, precision, library, options):
    """All competitors on one case: {name: figures}, on every rank."""
    case = Case(comm, n, precision)
    upper = n * (n + 1) // 2
    makers = {s: (lambda s=s: Pchan(case, s)) for s in STRATEGIES}
    if n * precision <= options.peer_limit:
        makers["mpi4py+gmpy2"] = lambda: Mpi4py(case)
    if library and 8 * case.basis.n_primes * upper * comm.size < options.memory * GIB / 2:
        makers["sdpb pairwise"] = lambda: Sdpb(case, library, 0)
        makers["sdpb ring"] = lambda: Sdpb(case, library, 1)
    makers = {k: v for k, v in makers.items() if not options.only or k in ("residues", *options.only)}
    results = {name: {"cpu_s": [], "wall_s": []} for name in makers}
    for repetition in range(options.repetitions):
        for name, make in makers.items():
            slow = name in SLOW and upper * precision > 50_000_000
            if repetition and slow:
                continue
            runner = make()
            for cycle in range(1 if slow else 4):
                times = measure(comm, runner)
                if cycle or slow:  # the first one touches memory
                    results[name]["cpu_s"].append(times[0])
                    results[name]["wall_s"].append(times[1])
            runner.check()
            results[name]["bytes_held"] = comm.allreduce(runner.bytes_held, MPI.MAX)
            results[name]["stages_s"] = {k: comm.allreduce(v) for k, v in runner.stages().items()}
            runner.free()
            del runner
    for figures in results.values():
        figures["cpu_s"], figures["wall_s"] = min(figures["cpu_s"]), min(figures["wall_s"])
    return results


def scan_cost(comm, library):
    """Nanoseconds per element of one scan for an owner."""
    case = Case(comm, 1000, 64)
    x = Sdpb(case, library, 0)
    best = np.inf
    for part in range(5):
        cpu = time.process_time()
        library.exchange_scan(x.x, part % comm.size)
        best = min(best, time.process_time() - cpu)
    x.free()
    return 1e9 * best / (case.n * (case.n + 1) / 2)


def show(n, precision, size, results):
    ours = results["residues"]["cpu_s"]
    print(f"\nn = {n}, {precision} bits, {size} nodes of 1 rank: {n * (n + 1) // 2} elements")
    print(f"{'':15}{'CPU [s]':>10}{'wall [s]':>10}{'ratio':>8}{'held/rank [MB]':>16}  stages, all ranks' clocks")
    for name, f in results.items():
        stages = "  ".join(
            f"{k.removesuffix('_s')} {v:.3f}" for k, v in f["stages_s"].items() if v and k[:3] != "add"
        )
        times = f"{f['cpu_s']:10.4f}{f['wall_s']:10.4f}{f['cpu_s'] / ours:8.2f}"
        print(f"{name:15}{times}{f['bytes_held'] / 1e6:16.1f}  {stages}")
    if precision != 1024:
        return
    for name, least, ranks in GOALS:
        if name in results and size == ranks and n >= 300:
            ratio = results[name]["cpu_s"] / ours
            print(f"goal: {name} / residues >= {least}: {ratio:.2f} {'reached' if ratio >= least else 'MISSED'}")


def show_scan(cost):
    steps, elements = 12 * 128 - 1, 5485 * 5486 / 2
    print(
        f"\none scan for owners: {cost:.2f} ns per element here; n = 5485 on 12 x 128 ranks: {steps} steps, "
        f"{steps * elements * cost * 1e-9:.0f} s of scanning on every rank.\n"
        "SDPB's published figures there: ring 5 to 10 minutes, pairwise exchange about 10 s an iteration."
    )


def parse(argv):
    parser = Parser("qreduce", __doc__)
    numbers = lambda text: [int(x) for x in text.split(",")]  # noqa: E731
    parser.add_argument("--full", action="store_true", help="n up to 2000, 256 to 2048 bits")
    parser.add_argument("--n", type=numbers, help="rows, separated by commas")
    parser.add_argument("--bits", type=numbers, help="SDPB's precision N, separated by commas")
    parser.add_argument("--only", type=lambda text: text.split(","), help="competitors of residues, by name")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--memory", type=float, default=12, help="GiB that all ranks may take (default 12)")
    options = parser.parse(argv)
    options.n = options.n or ([100, 300, 1000, 2000] if options.full else [100, 300])
    options.bits = options.bits or ([256, 512, 1024, 2048] if options.full else [1024])
    options.peer_limit = 1024 * 1000
    return options


def fits(comm, n, precision, options):
    basis = pchan.PrimeBasis(2 * precision + 1)
    estimate = pchan.QReduceScatter.estimate(n, basis, range(comm.size), strategy="ring")
    return estimate.node_bytes.sum() < options.memory * GIB


def main(argv=None):
    comm, options = MPI.COMM_WORLD, parse(argv)
    run = Run(comm, "qreduce", options, pinned=False)
    library = load_sdpb(comm)
    cost = scan_cost(comm, library) if library else None
    cases, wanted = [], [(n, precision) for n in options.n for precision in options.bits]
    with bar("bench qreduce", comm.rank == 0) as progress:
        for done, (n, precision) in enumerate(wanted, 1):
            if fits(comm, n, precision, options):
                results = run_case(comm, n, precision, library, options)
                cases.append({"n": n, "bits": precision, "results": results})
                if comm.rank == 0:
                    show(n, precision, comm.size, results)
            elif comm.rank == 0:
                print(f"\nn = {n}, {precision} bits: left out, needs more than {options.memory:g} GiB")
            sys.stdout.flush()
            if progress:
                progress(done, len(wanted))
    if comm.rank == 0 and cost:
        show_scan(cost)
    run.finish({"scan_ns_per_element": cost, "cases": cases})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
