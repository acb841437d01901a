"""Channel: misuse is named, and leaves the channel as it was."""

import copy
import os
import pickle
import threading
import time

import numpy as np
import pytest
from mpi4py import MPI
from mpi_faults import is_here, without

import pchan

pytestmark = pytest.mark.mpi


def test_arguments(comm):
    a = np.zeros(1)
    ch = pchan.Channel(comm)
    for init in (ch.send_init, ch.recv_init):
        for peer in (comm.size, -7, 2**31, 2**80, -(2**80)):
            with pytest.raises(ValueError):
                init(a, peer)
        for tag in (-1 if init == ch.send_init else -9, comm.Get_attr(MPI.TAG_UB) + 1, 2**31, 2**80):
            with pytest.raises(ValueError):
                init(a, 0, tag)
        for wrong in (1.0, "0", None, [0]):
            with pytest.raises(TypeError):
                init(a, wrong)
            with pytest.raises(TypeError):
                init(a, 0, wrong)
    with pytest.raises(ValueError):
        ch.send_init(a, MPI.ANY_SOURCE)
    with pytest.raises(ValueError):
        ch.send_init(a, 0, MPI.ANY_TAG)
    assert len(ch) == 0
    ch.send_init(a, 0, comm.Get_attr(MPI.TAG_UB))
    ch.free()


def test_communicators(comm):
    with pytest.raises(TypeError):
        pchan.Channel("world")
    with pytest.raises(TypeError):
        pchan.Channel(None)
    with pytest.raises(ValueError):
        pchan.Channel(MPI.COMM_NULL)
    freed = comm.Dup()
    freed.Free()
    with pytest.raises(ValueError):
        pchan.Channel(freed)


@pytest.mark.mpi(min_size=2)
def test_intercommunicator(comm):
    half = comm.Split(comm.rank % 2)
    inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2)
    with pytest.raises(ValueError, match="intercommunicator"):
        pchan.Channel(inter)
    inter.Free()
    half.Free()


def test_every_transition(comm):
    a = np.zeros(1)
    ch = pchan.Channel(comm)
    for call in (ch.wait, ch.test):
        with pytest.raises(pchan.StateError):
            call()
    assert ch.wait_any() is None
    ch.recv_init(a, comm.rank)
    ch.start()
    for call in (ch.start, ch.exchange, ch.free, lambda: ch.send_init(a, 0), lambda: ch.recv_init(a, 0)):
        with pytest.raises(pchan.StateError):
            call()
    assert ch.active and len(ch) == 1
    with pytest.raises(pchan.StateError):
        _ = ch.statuses
    with pchan.Channel(comm) as other:
        other.send_init(np.ones(1), comm.rank)
        other.exchange()
    ch.wait()
    with pytest.raises(pchan.StateError):
        ch.wait()
    ch.free()
    ch.free()
    calls = [ch.start, ch.wait, ch.test, ch.exchange, ch.wait_any, lambda: ch.send_init(a, 0), lambda: len(ch)]
    for call in [*calls, lambda: ch.statuses, lambda: ch[0]]:
        with pytest.raises(pchan.StateError, match="freed"):
            call()
    assert not ch.active


def test_timeout_names_what_is_missing_and_can_be_waited_again(comm):
    a, b, c = np.zeros(1), np.zeros(2), np.zeros(4)
    ch = pchan.Channel(comm)
    ch.recv_init(a, comm.rank, 7)
    ch.recv_init(b, comm.rank, 8)
    ch.send_init(np.ones(1), comm.rank, 7)
    ch.recv_init(c, MPI.PROC_NULL)
    ch.start()
    for timeout in (0, 0.02):
        with pytest.raises(pchan.WaitTimeout, match=r"1 of 4 .*operation 1 \(recv from \d+, tag 8, 16 bytes\)"):
            ch.wait(timeout=timeout)
        assert ch.active
    assert not ch.test()
    assert sorted(ch.wait_any() for _ in range(3)) == [0, 2, 3]
    with pytest.raises(pchan.WaitTimeout):
        ch.wait_any(timeout=0.01)
    with pchan.Channel(comm) as other:
        other.send_init(np.full(2, 5.0), comm.rank, 8)
        other.exchange()
    ch.wait(2)
    assert a[0] == 1 and b[1] == 5 and ch.statuses[1] == (comm.rank, 8, 16)
    ch.free()
    assert issubclass(pchan.WaitTimeout, TimeoutError)


@pytest.mark.parametrize("timeout", [-1, float("nan"), -0.5])
def test_bad_timeouts(comm, timeout):
    with pchan.Channel(comm) as ch:
        ch.start()
        with pytest.raises(ValueError):
            ch.wait(timeout)
        with pytest.raises(TypeError):
            ch.wait("soon")
        with pytest.raises(TypeError):
            ch.wait(1, 2)
        with pytest.raises(TypeError):
            ch.wait(limit=1)
        ch.wait(float("inf"))


def by_test(ch):
    while not ch.test():
        pass


def by_wait_any(ch):
    while ch.wait_any() is not None:
        pass


def by_short_waits(ch):
    while True:
        try:
            return ch.wait(timeout=1e-4)
        except pchan.WaitTimeout:
            pass


@pytest.mark.parametrize("finish", [pchan.Channel.wait, by_test, by_wait_any, by_short_waits])
@pytest.mark.parametrize("n", [4, pytest.param(50_000, marks=without("truncation"))])  # eager and rendezvous
@pytest.mark.parametrize("place", [0, 1, 2])  # the last receive has a way of its own through the core
@without("lost request")
def test_truncation_is_named_and_everything_else_finishes(comm, finish, n, place):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    out = np.arange(float(n)) + comm.rank
    into = [np.zeros(n // 2 if k == place else n) for k in range(3)]
    ch = pchan.Channel(comm)
    for k in range(3):
        ch.recv_init(into[k], left, k)
    for k in range(3):
        ch.send_init(out, right, k)
    for _ in range(3):
        for array in into:
            array[:] = -1
        ch.start()
        text = rf"operation {place} \(recv from {left}, tag {place}, {8 * (n // 2)} bytes\): Message truncated"
        with pytest.raises(pchan.MPIError, match=text) as caught:
            finish(ch)
        assert "stack" not in str(caught.value)
        assert caught.value.Get_error_class() == MPI.ERR_TRUNCATE and isinstance(caught.value, MPI.Exception)
        assert not ch.active and ch.wait_any() is None
        for k in range(3):
            source, tag, nbytes = ch.statuses[k]
            assert (source, tag) == (left, k) and ch.statuses[3 + k] == (comm.rank, k, 8 * n)
            if k != place:
                assert np.array_equal(into[k], np.arange(float(n)) + left) and nbytes == 8 * n
            else:
                assert 0 <= nbytes <= 8 * (n // 2)
    ch.free()


@pytest.mark.parametrize("finish", [pchan.Channel.wait, by_test, by_wait_any, by_short_waits])
@pytest.mark.parametrize("place", [0, 1])  # the last receive has a way of its own through the core
def test_truncation_leaves_a_channel_that_starts_or_says_why_not(comm, finish, place):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    out, into = np.arange(4.0), [np.zeros(2 if k == place else 4) for k in range(2)]
    ch = pchan.Channel(comm)
    for k in range(2):
        ch.recv_init(into[k], left, k)
    for k in range(2):
        ch.send_init(out, right, k)
    ch.start()
    with pytest.raises(pchan.MPIError, match=f"operation {place} .*Message truncated"):
        finish(ch)
    assert np.array_equal(into[1 - place], out) and not ch.active
    if is_here("lost request"):
        with pytest.raises(pchan.StateError, match="broken by an earlier MPI error"):
            ch.start()
    else:
        ch.start()
        with pytest.raises(pchan.MPIError, match=f"operation {place} .*Message truncated"):
            finish(ch)
    ch.free()


def test_two_threads_on_one_channel(comm):
    ch = pchan.Channel(comm)
    a = np.zeros(1)
    ch.recv_init(a, comm.rank)
    ch.start()
    errors = []

    def wait():
        try:
            ch.wait(30)
        except Exception as e:
            errors.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    refused = 0
    for _ in range(200):
        try:
            ch.test()
        except pchan.StateError:
            refused += 1
    with pchan.Channel(comm) as other:
        other.send_init(np.ones(1), comm.rank)
        other.exchange()
    thread.join()
    # the waiting thread may itself have met the test in the middle of a slice
    assert all(isinstance(e, pchan.StateError) for e in errors)
    if errors:
        ch.wait()
    assert refused and a[0] == 1 and not ch.active
    ch.free()


def test_two_channels_in_two_threads(comm):
    def work(ch, out, into, results):
        for k in range(200):
            out[:] = k
            ch.exchange()
            if not np.all(into == k):
                results.append(k)

    results, threads = [], []
    channels = [pchan.Channel(comm) for _ in range(2)]
    for tag, ch in enumerate(channels):
        out, into = np.zeros(5), np.zeros(5)
        ch.send_init(out, (comm.rank + 1) % comm.size, tag)
        ch.recv_init(into, (comm.rank - 1) % comm.size, tag)
        threads.append(threading.Thread(target=work, args=(ch, out, into, results)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not results
    for ch in channels:
        ch.free()


def test_pickle_and_copy_are_refused(comm):
    with pchan.Channel(comm) as ch:
        for function in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="Channel"):
                function(ch)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_is_refused(comm):
    ch = pchan.Channel(comm)
    ch.send_init(np.zeros(1), MPI.PROC_NULL)
    pid = os.fork()
    if pid == 0:  # nothing but the answer may happen here: no pytest, no MPI
        code = 1
        try:
            ch.start()
        except pchan.StateError as e:
            code = 0 if "forked" in str(e) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ch.exchange()
    ch.free()


def test_faults_found_by_breaking_it(comm):
    """Each was once accepted, or an error of another kind."""
    a = np.zeros(10)
    pile = MPI.DOUBLE.Create_resized(0, 0).Commit()

    class Rude:
        def __index__(self):
            raise ZeroDivisionError

        def __dlpack_device__(self):
            raise RuntimeError("no device today")

    ch = pchan.Channel(comm)
    cases = [
        (ValueError, [a, 2**40, pile], 0),
        (ValueError, [a, (0, 2**40), MPI.DOUBLE], 0),
        (TypeError, MPI.IN_PLACE, 0),
        (TypeError, [MPI.IN_PLACE, 1, MPI.DOUBLE], 0),
        (TypeError, np.ma.masked_array(a, mask=True), 0),
        (TypeError, Rude(), 0),
        (TypeError, a, Rude()),
    ]
    for error, buf, dest in cases:
        with pytest.raises(error, match="send_init"):
            ch.send_init(buf, dest)
    assert len(ch) == 0
    ch.free()
    pile.Free()


@without("uncommitted")
def test_an_uncommitted_datatype(comm):
    uncommitted = MPI.DOUBLE.Create_vector(2, 1, 3)
    with pchan.Channel(comm) as ch, pytest.raises(ValueError, match="send_init"):
        ch.send_init([np.zeros(10), 1, uncommitted], 0)
    uncommitted.Free()


@pytest.mark.parametrize("name", ["wait", "wait_any"])
def test_a_signal_handler_may_free_the_channel_that_is_waited_for(name):
    import signal

    comm, into = MPI.COMM_SELF, np.zeros(1)
    ch = pchan.Channel(comm, private=False)
    ch.recv_init(into, 0, 1)

    def handler(*_):
        comm.Send(np.ones(1), 0, 1)
        while not ch.test():
            pass
        ch.free()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        ch.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(pchan.StateError, match="freed"):
            getattr(ch, name)()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert into[0] == 1
