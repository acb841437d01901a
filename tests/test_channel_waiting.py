"""Channel: how a wait waits."""

import os
import sys
import threading
import time

import numpy as np
import pytest
from mpi4py import MPI
from run_mpi import run_mpi

import pchan

SPIN = """
import pchan
from mpi4py import MPI
spins = MPI.COMM_WORLD.gather(pchan.Channel(MPI.COMM_WORLD).spin_us)
if spins:
    print(*spins)
"""


@pytest.mark.launcher
def test_no_spinning_with_more_ranks_than_cores():
    cores = len(os.sched_getaffinity(0))
    code = [sys.executable, "-c", SPIN]
    assert run_mpi(1, code).stdout.split() == ["50.0"]
    if cores < 8:
        assert run_mpi(cores + 1, code).stdout.split() == ["0.0"] * (cores + 1)
        assert run_mpi(cores + 1, code, PCHAN_SPIN_US="7.5").stdout.split() == ["7.5"] * (cores + 1)
    assert run_mpi(2, code, PCHAN_SPIN_US="0").stdout.split() == ["0.0"] * 2


@pytest.mark.launcher
def test_sub_communicators_know_that_the_node_is_crowded():
    cores = len(os.sched_getaffinity(0))
    if cores >= 8:
        pytest.skip("too many cores here to outnumber them")
    code = SPIN.replace("Channel(MPI.COMM_WORLD)", "Channel(MPI.COMM_SELF)")
    assert run_mpi(cores + 1, [sys.executable, "-c", code]).stdout.split() == ["0.0"] * (cores + 1)


@pytest.mark.mpi
def test_other_threads_run_during_a_wait(comm):
    """The GIL is held for a few microseconds only."""
    stop, steps = threading.Event(), [0]

    def count():
        while not stop.is_set():
            steps[0] += 1
            time.sleep(0)

    ch = pchan.Channel(comm)
    ch.recv_init(np.zeros(1), comm.rank)
    ch.start()
    thread = threading.Thread(target=count)
    thread.start()
    try:
        for wait in (ch.wait, ch.wait_any):
            before = steps[0]
            with pytest.raises(pchan.WaitTimeout):
                wait(timeout=0.15)
            assert steps[0] - before > 10
    finally:
        stop.set()
        thread.join()
    with pchan.Channel(comm) as other:
        other.send_init(np.ones(1), comm.rank)
        other.exchange()
    ch.wait()
    ch.free()


@pytest.mark.mpi
def test_a_late_peer(comm):
    """A rank that comes late finds its neighbours waiting."""
    into = np.zeros(1)
    with pchan.Channel(comm) as ch:
        ch.recv_init(into, (comm.rank - 1) % comm.size)
        ch.send_init(np.array([comm.rank + 1.0]), (comm.rank + 1) % comm.size)
        for late in range(comm.size):
            if comm.rank == late:
                time.sleep(0.05)
            ch.exchange(timeout=20)
            assert into[0] == (comm.rank - 1) % comm.size + 1
    assert MPI.Is_initialized()
