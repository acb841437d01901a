"""Channel: a cycle calls no malloc, neither in pchan nor in Python.

A library put before libc counts the calls of malloc, calloc, realloc and the like by the module that calls, told by
the return address. So what MPI allocates for itself (MPICH does for messages that come unexpected) is a count of its
own and does not matter. With PYTHONMALLOC=malloc every object that Python makes shows up as well.
"""

import os
import shutil
import subprocess
import sys

import pytest
from run_mpi import run_mpi

COUNTER = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

enum { MAX_RANGES = 64 };
static struct { uintptr_t first, end; int module; } ranges[MAX_RANGES];
static int n_ranges;
long counts[MAX_RANGES + 1]; /* by module; the last one: everybody else */

void watch(uintptr_t first, uintptr_t end, int module)
{
    ranges[n_ranges].first = first, ranges[n_ranges].end = end, ranges[n_ranges].module = module;
    n_ranges++;
}

static void count(void *caller)
{
    int module = MAX_RANGES;
    for (int i = 0; i < n_ranges; i++) {
        if ((uintptr_t)caller >= ranges[i].first && (uintptr_t)caller < ranges[i].end) module = ranges[i].module;
    }
    __atomic_fetch_add(&counts[module], 1, __ATOMIC_RELAXED);
}

void *malloc(size_t n) { count(__builtin_return_address(0)); return __libc_malloc(n); }
void *calloc(size_t n, size_t each) { count(__builtin_return_address(0)); return __libc_calloc(n, each); }
void *realloc(void *p, size_t n) { count(__builtin_return_address(0)); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { count(__builtin_return_address(0)); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { count(__builtin_return_address(0)); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n)
{
    count(__builtin_return_address(0));
    *p = __libc_memalign(a, n);
    return *p ? 0 : ENOMEM;
}
"""

PROGRAM = """
    import ctypes, gc, os, sys
    import numpy as np
    from mpi4py import MPI
    import pchan

    counter = ctypes.CDLL(os.environ["LD_PRELOAD"])
    counter.watch.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    counts = (ctypes.c_long * 65).in_dll(counter, "counts")
    PCHAN, PYTHON, OTHERS = 0, 1, 64
    interpreter = os.path.realpath(sys.executable)
    for line in open("/proc/self/maps"):
        place, access, *_, path = line.split(maxsplit=5)
        first, end = (int(x, 16) for x in place.split("-"))
        if "x" in access and path.strip() == pchan._core.__file__:
            counter.watch(first, end, PCHAN)
        elif "x" in access and (path.strip() == interpreter or "libpython" in path):
            counter.watch(first, end, PYTHON)

    comm = MPI.COMM_WORLD
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    before = counts[PCHAN], counts[PYTHON]
    channels = []
    for n in (1, 512, 8192):  # eager and rendezvous, contiguous and strided
        ch = pchan.Channel(comm)
        for k in range(8):
            ch.send_init(np.zeros(n), right, k)
            ch.recv_init(np.zeros((n, 2))[:, k % 2], left, k)
        channels.append(ch)
    assert counts[PCHAN] > before[0] and counts[PYTHON] > before[1], "the counter does not count"

    def cycles(n):
        for ch in channels:
            start, wait, exchange, test, wait_any = ch.start, ch.wait, ch.exchange, ch.test, ch.wait_any
            i = 0
            while i < n:  # small integers are no new objects
                start()
                wait()
                exchange()
                start()
                while not test():
                    pass
                start()
                while wait_any() is not None:
                    pass
                i += 1

    gc.collect()
    gc.disable()
    snapshots = [(ctypes.c_long * 65)() for _ in range(4)]
    for k, n in enumerate((20, 10, 60)):
        ctypes.memmove(snapshots[k], counts, ctypes.sizeof(counts))
        cycles(n)
    ctypes.memmove(snapshots[3], counts, ctypes.sizeof(counts))
    few, many = ([snapshots[k + 1][m] - snapshots[k][m] for m in (PCHAN, PYTHON, OTHERS)] for k in (1, 2))
    for figures in comm.gather(few + many) or ():
        print(*figures)
    """


@pytest.mark.launcher
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts the calls of glibc's malloc")
@pytest.mark.parametrize("n", [1, 2])
def test_a_cycle_calls_no_malloc(tmp_path, n):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler here")
    source, library = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    run = run_mpi(n, PROGRAM, LD_PRELOAD=os.fspath(library), PYTHONMALLOC="malloc")
    assert run.returncode == 0 and len(run.stdout.splitlines()) == n, run.stdout + run.stderr
    for line in run.stdout.splitlines():  # of 10 times and of 60 times the cycles
        pchan_10, python_10, _mpi_10, pchan_60, python_60, _mpi_60 = map(int, line.split())
        assert (pchan_10, pchan_60) == (0, 0)
        assert python_60 < python_10 + 20 < 120, line  # what calling the loop takes, however often it goes round
