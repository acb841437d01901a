"""A job under a limit: python limited.py LIMIT. Every rank prints how each step ended.

"good": right values, and the transports of the messages. Anything else is the type and text of the error. What stands
in BEFORE is set before MPI_Init, as a container or an administrator does, so that MPI knows it too.
"""

import ctypes
import os
import resource
import struct
import sys

import mpi4py
import numpy as np

mpi4py.rc.initialize = False
from mpi4py import MPI  # noqa: E402

import pchan  # noqa: E402

comm = MPI.COMM_WORLD
EPERM, ENOSYS = 1, 38
READV, WRITEV, MEMFD = 310, 311, 319  # x86-64


def forbid(errno, *calls):
    """These system calls fail from now on: a filter of BPF, as container runtimes set it."""
    libc = ctypes.CDLL(None, use_errno=True)
    load, equal, give = 0x20, 0x15, 0x06
    code = [(load, 0, 0, 0)]
    for call in calls:
        code += [(equal, 0, 1, call), (give, 0, 0, 0x00050000 | errno)]
    code.append((give, 0, 0, 0x7FFF0000))
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP


def lower(kind, value):
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def fill_shm():
    """All but 64 KiB, which MPI may want."""
    comm.Barrier()
    if comm.rank == 0:
        with open("/dev/shm/filler", "wb") as file:
            free = os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_bsize
            os.posix_fallocate(file.fileno(), 0, free - 65536)
    comm.Barrier()


def address_space():
    with open("/proc/self/statm") as file:
        lower(resource.RLIMIT_AS, int(file.read().split()[0]) * 4096 + (8 << 20))


def full_shm_without_memfd():
    fill_shm()
    forbid(ENOSYS, MEMFD)


def unattachable():
    """Not dumpable, no CAP_SYS_PTRACE: nobody may look into this process, as under yama's ptrace_scope or hidepid."""
    libc = ctypes.CDLL(None, use_errno=True)
    head, sets = ctypes.create_string_buffer(struct.pack("II", 0x20080522, 0)), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, sets) == 0
    for kind in range(3):
        sets[kind] &= ~(1 << 19)
    assert libc.capset(head, sets) == 0 and libc.prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE


def on_last_rank(limit):
    return lambda: limit() if comm.rank == comm.size - 1 else None


def only_one(limit):
    """Before MPI_Init: by the rank's number as Hydra tells it."""
    return lambda: limit() if os.environ["PMI_RANK"] == "1" else None


def no_attach(errno):
    return lambda: forbid(errno, READV, WRITEV)


BEFORE = {
    "no process_vm_readv, writev: EPERM": no_attach(EPERM),
    "no process_vm_readv, writev: ENOSYS": no_attach(ENOSYS),
    "no process_vm_writev": lambda: forbid(EPERM, WRITEV),
    "no process_vm_readv, writev on one rank": only_one(no_attach(EPERM)),
    "no ptrace": unattachable,
}
AFTER = {
    "none": lambda: None,
    "full /dev/shm": fill_shm,
    "full /dev/shm, no memfd_create": full_shm_without_memfd,
    "no memfd_create": lambda: forbid(ENOSYS, MEMFD),
    "RLIMIT_AS": address_space,
    "RLIMIT_AS on one rank": on_last_rank(address_space),
    "RLIMIT_MEMLOCK": lambda: lower(resource.RLIMIT_MEMLOCK, 0),
    "RLIMIT_NOFILE": lambda: lower(resource.RLIMIT_NOFILE, 3),
}


def messages():
    """A short and a long one, each way round the ring."""
    arrays = [(np.zeros(n), np.zeros(n)) for n in (3, 50_000)]
    with pchan.Channel(comm) as ch:
        for out, into in arrays:
            ch.send_init(out, right)
            ch.recv_init(into, left)
        ch.connect()
        for cycle in range(20):
            for out, into in arrays:
                out[:], into[:] = comm.rank + 10 * cycle, -1
            ch.exchange(timeout=60)
            assert all(np.all(into == left + 10 * cycle) for _, into in arrays), "wrong values"
        return " ".join(op.transport for op in ch)


def shared():
    """An array of 32 MiB, written to its end."""
    array = pchan.empty(comm, 4 << 20)
    array[:] = comm.rank
    return f"{array.sum() == comm.rank * array.size}"


def reduced():
    """A window of 27 MiB."""
    n, basis = 400, pchan.PrimeBasis(1024)
    with pchan.QReduceScatter(comm, n, basis) as q:
        q.add(0, 0, basis.residues(np.full((n, n), comm.rank + 1, dtype=object)))
        q.start()
        q.wait(60)
        return str(set(pchan.limbs_to_ints(q.limbs).tolist()) == {comm.size * (comm.size + 1) // 2})


def report(name, step):
    try:
        result = f"good: {step()}"
    except Exception as e:
        result = f"{type(e).__name__}: {e}"
    sys.stdout.write(f"{name} | {result}\n")
    sys.stdout.flush()
    comm.Barrier()


if __name__ == "__main__":
    limit = sys.argv[1]
    BEFORE.get(limit, lambda: None)()
    MPI.Init()
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    messages()  # whatever is loaded or opened at first use
    AFTER.get(limit, lambda: None)()
    report("connect", messages)
    report("empty", shared)
    report("residues", reduced)
    MPI.Finalize()
