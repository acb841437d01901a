"""What other users of the machine can get at, and what never happens: the threat model of docs/reliability.md."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pchan

PACKAGE = Path(pchan.__file__).parent
# Runs as nobody on process $1: whatever it could open or attach to is printed.
INTRUDER = """
import ctypes, glob, os, sys
pid, address = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ways = [f"/proc/{pid}/mem", f"/proc/{pid}/maps"]
for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
    try:
        ways += [os.path.join(folder, name) for name in os.listdir(folder)]
    except PermissionError:
        ways += [f"{folder}/{k}" for k in range(64)]
ways += glob.glob("/dev/shm/*pchan*")
for way in ways:
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            os.open(way, flags)
        except OSError:
            continue
        print("opened", way)
class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
mine = ctypes.create_string_buffer(8)
here, there = iovec(ctypes.addressof(mine), 8), iovec(address, 8)
libc = ctypes.CDLL(None, use_errno=True)
for call in (libc.process_vm_readv, libc.process_vm_writev):
    if call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != -1:
        print("attached by", call.__name__)
print("tried", len(ways))
"""


@pytest.fixture
def busy(comm):
    """Every kind of shared memory there is, in use: an array of the node, edges, a window."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    a, b = pchan.empty(comm, 50_000), pchan.empty(comm, 50_000)
    a[:] = comm.rank
    with pchan.Channel(comm) as ch, pchan.QReduceScatter(comm, 5, pchan.PrimeBasis(100)):
        for x, y in ((a, b), (np.zeros(3), np.zeros(3))):
            ch.recv_init(y, left)
            ch.send_init(x, right)
        ch.connect()
        ch.exchange(timeout=30)
        comm.Barrier()
        yield a
        comm.Barrier()
        assert np.all(a == comm.rank)


def windows():
    """(address range, what is mapped) of pchan's memory in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [
        (line.split()[0], line.split(maxsplit=5)[5])
        for line in lines
        if "pchan" in line.split(maxsplit=5)[-1]
        and ".so" not in line
        and "/memfd:" in line
        or "/dev/shm/pchan" in line
    ]


def test_segments_have_no_name_and_no_file_left_open(busy):
    found = windows()
    assert len(found) >= 3, found
    assert all(what == "/memfd:pchan-window (deleted)" for _, what in found), found
    assert not [name for name in os.listdir("/dev/shm") if "pchan" in name]
    files = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the listing's own
            continue
    assert not [name for name in files if "pchan-" in name], files


def test_segments_are_of_mode_0600(busy):
    if os.geteuid() != 0:
        pytest.skip("needs root: only root may look through /proc/self/map_files")
    for place, what in windows():
        first, last = (int(end, 16) for end in place.split("-"))
        status = os.stat(f"/proc/self/map_files/{first:x}-{last:x}")
        assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.geteuid()), (what, oct(status.st_mode))


def test_another_user_cannot_get_at_it(busy):
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    arguments = [str(os.getpid()), str(busy.ctypes.data)]
    # The interpreter of a root-only environment could not be started as nobody: setuid comes in the program
    run = subprocess.run([sys.executable, "-c", INTRUDER, *arguments], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and run.stdout.startswith("tried ") and int(run.stdout.split()[1]) >= 100, run


# ---- the source ----

PICKLED = set(
    "bcast gather allgather allreduce send recv scatter alltoall reduce sendrecv exscan scan isend irecv ssend bsend issend ibsend mrecv".split()
)
UNSAFE_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
UNSAFE_CALLS = {"eval", "exec", "compile", "mktemp", "tmpnam"}
# these have the name of a method of mpi4py; the object is pchan's own
OWN = {"q", "self.q", "work", "self._work", "g"}


def complaints(source):
    """What this source must not do, as (line, what)."""
    found = []
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            found += [(line, a.name) for a in node.names if a.name.partition(".")[0] in UNSAFE_MODULES]
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in UNSAFE_MODULES:
            found.append((line, node.module))
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.match("/tmp|/var/tmp|/dev/shm/", node.value)  # how large /dev/shm is may be asked
        ):
            found.append((line, f"fixed path {node.value}"))
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        owner, _, last = name.rpartition(".")
        if last in UNSAFE_CALLS and owner in ("", "builtins", "tempfile", "os"):
            found.append((line, name))
        if last in PICKLED and owner and owner not in OWN:
            found.append((line, f"{name}: mpi4py pickles"))
        for keyword in node.keywords:
            if keyword.arg in ("allow_pickle", "shell") and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                found.append((line, f"{name}({keyword.arg})"))
        if name in ("np.load", "numpy.load") and "allow_pickle" not in {k.arg for k in node.keywords}:
            found.append((line, f"{name} without allow_pickle=False"))
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_no_pickle_no_eval_no_predictable_name(path):
    assert complaints(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from marshal import loads",
        "eval(x)",
        "comm.bcast(1)",
        "node.allgather(x)",
        "np.load(p)",
        "np.load(p, allow_pickle=True)",
        "open('/tmp/pchan')",
        "open(f'/dev/shm/{name}', 'w')",
        "tempfile.mktemp()",
    ],
)
def test_the_check_of_the_source_sees_it(line):
    assert complaints(line)
