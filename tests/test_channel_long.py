"""Channel: messages of more than 2^31 bytes and elements, for real. csrc/tests/t_channel_long.c has short stand-ins."""

import pytest
from run_mpi import run_mpi

GIB = 1 << 30
NEEDED = 6 * GIB  # two arrays of 2 GiB, one of them hardly touched, and room for what MPI copies


def available_bytes():
    with open("/proc/meminfo") as f:
        free = next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))
    try:  # a container's limit; "max" is none
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as used:
            return min(free, int(limit.read()) - int(used.read()))
    except (OSError, ValueError):
        return free


LONG = """
    import numpy as np
    from mpi4py import MPI
    import pchan

    comm, n = MPI.COMM_WORLD, 2**31 + 64
    data = np.zeros(n, dtype=np.int8)
    for dtype in (np.int8, np.float64):  # more elements than an int counts, then only more bytes
        a = data.view(dtype)
        marks = [0, 1, len(a) // 2 - 1, len(a) // 2, len(a) - 2, len(a) - 1]
        with pchan.Channel(comm) as ch:
            if comm.rank == 0:
                a[marks] = range(1, 7)
                ch.send_init(a, 1)
            else:
                a[:] = 9
                ch.recv_init(a, 0)
            assert ch[0].nbytes == n
            ch.exchange()
            assert ch.statuses == [(0, 0, n)]
        assert a[marks].tolist() == [1, 2, 3, 4, 5, 6]
        assert comm.rank == 0 or np.count_nonzero(a) == 6
    comm.Barrier()
    if comm.rank == 0:
        print("good")
    """


@pytest.mark.launcher
def test_more_than_two_gib():
    if available_bytes() < NEEDED:
        pytest.skip(f"less than {NEEDED // GIB} GiB of memory free")
    run = run_mpi(2, LONG)
    assert run.stdout.split() == ["good"], run.stdout + run.stderr
