"""Networks that are slow or break, and processes that die, on two hosts with two ranks each."""

import re
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from hosts import HERE, Hosts, why_not
from test_suite import INSIDE, check, pytest_command

pytestmark = pytest.mark.usefixtures("needs_hosts")
RANKS = (2, 2)
CYCLES = str(HERE / "inside" / "cycles.py")


def measured(hosts):
    job = hosts.run(RANKS, sys.executable, str(HERE / "inside" / "link.py"))
    found = re.search(r"^rtt_ms (\S+) mbit_s (\S+)$", job.output, re.M)
    assert job.returncode == 0 and found, job.output
    return float(found[1]), float(found[2])


@pytest.mark.parametrize("delay_ms, rate", [(1, None), (0, "200mbit")], ids=["1 ms", "200 Mbit/s"])
def test_right_values_over_a_slow_network(delay_ms, rate, tmp_path, tell):
    if reason := why_not(delay_ms, rate):
        pytest.skip(f"no such network can be made here: {reason}")
    with Hosts(2, delay_ms, rate) as hosts:
        rtt_ms, mbit_s = measured(hosts)
        assert rtt_ms >= 2 * delay_ms and (rate is None or mbit_s < 220), "the network is faster than it should be"
        report = tmp_path / "report.xml"
        job = hosts.run(RANKS, *pytest_command(report, "-k", "off or auto", INSIDE), timeout=120)
        counts = check(report, job.returncode, job.output, least=10)
        tell(f"{counts}; there and back {rtt_ms:.2f} ms, {mbit_s:.0f} Mbit/s")


class Running:
    """cycles.py on hosts of its own."""

    def __init__(self, hosts, folder, options, env):
        self.hosts, self.folder = hosts, folder
        np.zeros(sum(RANKS), dtype=np.int64).tofile(folder / "progress")
        self.job = hosts.start(RANKS, sys.executable, CYCLES, str(folder), *options, timeout=90, **env)

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
        assert self.job.returncode == 0 and self.job.output.count("good: rank") == sum(RANKS), self.job.output
        return self.job.output


@contextmanager
def running(folder, *options, **env):
    with Hosts(len(RANKS)) as hosts:
        yield Running(hosts, folder, options, env)


@pytest.mark.parametrize("options", [("--plain",), (), ("--timeout=0.3",), ("--qreduce",)], ids=" ".join)
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


@pytest.mark.parametrize("load", [("--plain",), ()], ids=" ".join)
def test_a_link_that_stays_down(load, tmp_path, tell):
    """Every rank's wait ends with WaitTimeout that names messages, those over the link among them."""
    with running(tmp_path, *load, "--timeout=3", "--once") as run:
        run.until_cycles(20)
        run.hosts.link(2, "down")
        files = [tmp_path / f"timeout-{rank}" for rank in range(sum(RANKS))]
        run.until(lambda: all(file.exists() for file in files), "WaitTimeout on all ranks", limit=20)
        assert run.job.running()
        done = run.progress()
        run.hosts.close()
        run.job.wait()
        assert "bad:" not in run.job.output
    over_link = False
    for rank, text in enumerate(file.read_text() for file in files):
        named = re.findall(r"operation (\d+) \((recv from|send to) (\d+), tag (\d), (\d+) bytes\)", text)
        assert named, text
        for index, kind, peer, tag, size in named:
            assert int(index) == 4 * int(peer) + 2 * int(tag) + (kind == "recv from"), text
            assert int(size) == 8 * (40, 2**15)[int(tag)]
            over_link |= int(peer) // 2 != rank // 2 and done[rank] == done.min()
    assert over_link
    tell(files[0].read_text())


@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("load", [(), ("--qreduce",)], ids=["channel", "qreduce"])
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
