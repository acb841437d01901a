"""Networks that are slow or break, and processes that die, on two hosts with two ranks each, or on three."""

import re
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from hosts import HERE, Hosts, why_not
from test_suite import INSIDE, check, pytest_command

pytestmark = pytest.mark.usefixtures("needs_hosts")
RANKS, ON_THREE = (2, 2), (2, 1, 1)
STRATEGIES = ["residues", "restored", "ring", "mpi", "gather"]
CYCLES = str(HERE / "inside" / "cycles.py")


def measured(hosts, ranks=RANKS):
    job = hosts.run(ranks, sys.executable, str(HERE / "inside" / "link.py"))
    found = re.search(r"^rtt_ms (\S+) mbit_s (\S+)$", job.output, re.M)
    assert job.returncode == 0 and found, job.output
    return float(found[1]), float(found[2])


@pytest.mark.parametrize(
    "ranks, delay_ms, rate",
    [(RANKS, 1, None), (RANKS, 0, "200mbit")],
    ids=["1 ms", "200 Mbit/s"],
)
def test_right_values_over_a_slow_network(ranks, delay_ms, rate, tmp_path, tell):
    if reason := why_not(delay_ms, rate):
        pytest.skip(f"no such network can be made here: {reason}")
    with Hosts(len(ranks), delay_ms, rate) as hosts:
        rtt_ms, mbit_s = measured(hosts, ranks)
        assert rtt_ms >= 2 * delay_ms and (rate is None or mbit_s < 220), "the network is faster than it should be"
        report = tmp_path / "report.xml"
        job = hosts.run(ranks, *pytest_command(report, "-k", "off or auto", INSIDE), timeout=120)
        counts = check(report, job.returncode, job.output, least=10)
        tell(f"{counts}; there and back {rtt_ms:.2f} ms, {mbit_s:.0f} Mbit/s")


class Running:
    """cycles.py on hosts of its own."""

    def __init__(self, hosts, ranks, folder, options, env):
        self.hosts, self.n, self.folder = hosts, sum(ranks), folder
        np.zeros(self.n, dtype=np.int64).tofile(folder / "progress")
        self.job = hosts.start(ranks, sys.executable, CYCLES, str(folder), *options, timeout=90, **env)

    def progress(self):
        return np.fromfile(self.folder / "progress", dtype=np.int64)

    def until(self, condition, what, limit=40):
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end or not self.job.running():
                self.hosts.close()
                self.job.wait()
                pytest.fail(f"{what}: not so, progress {self.progress()}\n{self.job.output}")
            time.sleep(0.02)

    def processes(self):
        return sum((self.hosts[i + 1].processes() for i in range(len(RANKS))), [])

    def until_cycles(self, n, limit=40):
        self.until(lambda: self.progress().min() >= n, f"{n} cycles", limit)

    def stop(self):
        (self.folder / "stop").touch()
        self.job.wait()
        assert self.job.returncode == 0 and self.job.output.count("good: rank") == self.n, self.job.output
        return self.job.output


@contextmanager
def running(folder, *options, ranks=RANKS, **env):
    with Hosts(len(ranks)) as hosts:
        yield Running(hosts, ranks, folder, options, env)


@pytest.mark.parametrize("options", [("--plain",), (), ("--timeout=0.3",), ("--qreduce=residues",)], ids=" ".join)
def test_a_link_that_comes_back(options, tmp_path, tell):
    """Down for 3 seconds: nobody gets further, then all do, and every value is right."""
    with running(tmp_path, *options) as run:
        run.until_cycles(20)
        run.hosts.link(2, "down")
        time.sleep(0.5)
        before = run.progress()
        time.sleep(2.5)
        assert np.all(run.progress() - before <= 1) and run.job.running(), "the link was not down"
        run.hosts.link(2, "up")
        begin = time.monotonic()
        run.until_cycles(before.max() + 50)
        seconds = time.monotonic() - begin
        output = run.stop()
    timeouts = [int(n) for n in re.findall(r"(\d+) timeouts", output)]
    assert all(n >= 3 for n in timeouts) if "--timeout=0.3" in options else not any(timeouts)
    tell(f"50 cycles {seconds:.1f} s after the link; timeouts {timeouts}")


def texts_of_timeouts(folder, load, ranks):
    """What every rank's wait says after the link of host 2 has gone for good, and how far each has come."""
    with running(folder, *load, "--timeout=3", "--once", ranks=ranks) as run:
        run.until_cycles(20)
        run.hosts.link(2, "down")
        files = [folder / f"timeout-{rank}" for rank in range(run.n)]
        run.until(lambda: all(file.exists() for file in files), "WaitTimeout on all ranks", limit=20)
        assert run.job.running()
        done = run.progress()
        run.hosts.close()
        run.job.wait()
        assert "bad:" not in run.job.output
    return [file.read_text() for file in files], done


@pytest.mark.parametrize("load", [("--plain",), ()], ids=["plain", "connected"])
@pytest.mark.parametrize("ranks", [RANKS, ON_THREE], ids=["2+2", "2+1+1"])
def test_a_link_that_stays_down(ranks, load, tmp_path, tell):
    """Every rank's wait ends with WaitTimeout that names messages, those over the link among them."""
    texts, done = texts_of_timeouts(tmp_path, load, ranks)
    host_of = np.repeat(np.arange(len(ranks)), ranks)
    over_link = False
    for rank, text in enumerate(texts):
        named = re.findall(r"operation (\d+) \((recv from|send to) (\d+), tag (\d), (\d+) bytes\)", text)
        assert named, text
        for index, kind, peer, tag, size in named:
            assert int(index) == 4 * int(peer) + 2 * int(tag) + (kind == "recv from"), text
            assert int(size) == 8 * (40, 2**15)[int(tag)]
            over_link |= (host_of[int(peer)] == 1) != (host_of[rank] == 1) and done[rank] == done.min()
    assert over_link
    tell(texts[0])


@pytest.mark.parametrize("strategy", STRATEGIES, ids="strategy {}".format)  # a bare "mpi" is pytest-mpi's marker
def test_a_link_that_stays_down_under_a_reduce_scatter(strategy, tmp_path, tell):
    texts, done = texts_of_timeouts(tmp_path, (f"--qreduce={strategy}",), ON_THREE)
    waits = r"wait: the reduce-scatter still waits for (messages of the exchange|other ranks to finish|ranks of this node that have not started)"
    assert all(re.fullmatch(waits, text) for text in texts), texts
    assert np.ptp(done) <= 1, done  # nobody has taken an unfinished sum for a finished one
    tell("; ".join(sorted(set(texts))))


@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("load", [(), ("--qreduce=residues",)], ids=["channel", "qreduce"])
def test_a_killed_rank_ends_the_job(load, victim, tmp_path, tell):
    """SIGKILL in a cycle: the job ends within seconds, nothing is left on any host, and the next job works."""
    with running(tmp_path, *load, f"--kill={victim}") as run:
        run.until((tmp_path / "killed").exists, "the kill")
        begin = time.monotonic()
        run.job.wait()
        # mpiexec may end before the last rank it has killed
        while (left := run.processes()) and time.monotonic() - begin < 10:
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        assert run.job.returncode not in (0, None) and "good:" not in run.job.output, run.job.output
        assert seconds < 10 and not left, left
        hosts = [run.hosts[1], run.hosts[2]]
        left = sum((host.shared_memory() for host in hosts), [])
        assert all(name.startswith("mpich_shm_") for name in left), left  # MPICH leaves these, whatever runs on it
        tell(f"{seconds:.1f} s")
        measured(run.hosts)
