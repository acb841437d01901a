"""Channel: every kind of buffer arrives element by element, strided views without a copy."""

import array
import itertools

import numpy as np
import pytest
from mpi4py import MPI

import pchan

DTYPES = [
    "?",
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "e",
    "f",
    "d",
    "g",
    "F",
    "D",
    "G",
    "S5",
    "M8[s]",
    "m8[ns]",
]
STRUCTURED = np.dtype([("a", "i4"), ("b", "f8"), ("c", "u1", 3)])


def exchange_with_self(comm, send, recv, cycles=1):
    with pchan.Channel(comm) as ch:
        ch.recv_init(recv, comm.rank)
        ch.send_init(send, comm.rank)
        for _ in range(cycles):
            ch.exchange()
        return ch.statuses[0][2]


def values(dtype, shape, seed=0):
    if np.dtype(dtype).char in "gG":  # not every pattern of bits is a long double
        return np.random.default_rng(seed).random(shape).astype(dtype)
    data = np.random.default_rng(seed).integers(
        0, 2, size=(int(np.prod(shape)), np.dtype(dtype).itemsize), dtype=np.uint8
    )
    return np.ascontiguousarray(data).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", [*DTYPES, STRUCTURED], ids=str)
def test_dtypes(comm, dtype):
    a = values(dtype, (4, 6))
    for view in (np.s_[:], np.s_[:, 2], np.s_[::-1, 1::2]):
        b = np.zeros_like(a)
        n = exchange_with_self(comm, a[view], b[view])
        # long doubles have padding, which NumPy's own copies leave behind
        same = np.array_equal(a[view], b[view]) if a.dtype.char in "gG" else a[view].tobytes() == b[view].tobytes()
        assert same and n == a[view].nbytes
        untouched = np.ones(a.shape, dtype=bool)
        untouched[view] = False
        assert not np.any(b[untouched].view(np.uint8) if b[untouched].size else 0)


VIEWS = {
    "column": np.s_[:, 3, 2],
    "face": np.s_[:, :, 0],
    "middle face": np.s_[:, 4, :],
    "block": np.s_[1:4, 2:5, 1:3],
    "reversed": np.s_[::-1, ::-2, :],
    "one element": np.s_[2:3, 1:2, 0:1],
    "scalar": np.s_[1, 2, 3, ...],
    "empty": np.s_[2:2],
    "new axis": np.s_[None, :, None, 1, ::3],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("order", "CF")
def test_views_keep_their_indices(comm, name, order):
    a = np.asarray(np.arange(5 * 6 * 7.0).reshape(5, 6, 7), order=order)
    view = VIEWS[name]
    into = np.full(a.shape, -1.0, order="C")
    exchange_with_self(comm, a[view], into[view], cycles=2)
    assert np.array_equal(into[view], a[view])
    assert np.count_nonzero(into == -1.0) == into.size - a[view].size
    contiguous = np.zeros(a[view].shape)
    exchange_with_self(comm, a[view], contiguous)
    assert np.array_equal(contiguous, a[view])


def test_transposed_receive_is_no_silent_transpose(comm):
    a = np.arange(12.0).reshape(3, 4)
    f = np.zeros((3, 4), order="F")
    exchange_with_self(comm, a, f)
    assert np.array_equal(a, f)
    t = np.zeros((4, 3))
    exchange_with_self(comm, a, t.T)
    assert np.array_equal(t, a.T)


def test_faces_of_four_dimensions(comm):
    a = np.random.default_rng(1).random((4, 5, 3, 6))
    for axis in range(4):
        for where in (0, -1):
            b = np.zeros_like(a)
            face = tuple(where if d == axis else slice(1, -1) for d in range(4))
            exchange_with_self(comm, a[face], b[face])
            assert np.array_equal(a[face], b[face]) and np.count_nonzero(b) == a[face].size


def test_other_buffers(comm):
    for send, recv in [
        (b"hello", bytearray(5)),
        (array.array("d", [1, 2, 3]), array.array("d", [0, 0, 0])),
        (memoryview(bytearray(b"abcdef"))[::2], bytearray(3)),
        (np.float64(3.5), np.zeros(())),
    ]:
        exchange_with_self(comm, send, recv)
        assert bytes(memoryview(recv)) == (send.tobytes() if hasattr(send, "tobytes") else bytes(send))


def test_specifications_of_mpi4py(comm):
    a = np.arange(10.0)
    for spec, want in [
        ([a, MPI.DOUBLE], a),
        ([a, 4, MPI.DOUBLE], a[:4]),
        ([a, (3, 5), MPI.DOUBLE], a[5:8]),
        ((a, "d"), a),
        ([a.view(np.uint8), 2, MPI.DOUBLE], a[:2]),
    ]:
        into = np.zeros(10)
        n = exchange_with_self(comm, spec, into)
        assert np.array_equal(into[: len(want)], want) and n == 8 * len(want)


def test_derived_datatype_may_be_freed(comm):
    a, into = np.arange(12.0).reshape(3, 4), np.zeros((3, 4))
    column = MPI.DOUBLE.Create_vector(3, 1, 4).Commit()
    with pchan.Channel(comm) as ch:
        ch.send_init([a, 1, column], comm.rank)
        ch.recv_init([into, (1, 0), column], comm.rank)
        column.Free()
        for k in range(3):
            a[:, 0] += k
            ch.exchange()
            assert np.array_equal(into[:, 0], a[:, 0]) and not into[:, 1:].any()


def test_strided_sends_read_the_array_at_start(comm):
    a, into = np.zeros((6, 6)), np.zeros(6)
    with pchan.Channel(comm) as ch:
        ch.send_init(a[:, 2], comm.rank)
        ch.recv_init(into, comm.rank)
        for k in range(3):
            a[:, 2] = np.arange(6) * k
            ch.exchange()
            assert np.array_equal(into, np.arange(6) * k)


def test_refused_buffers(comm):
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    broadcast = np.lib.stride_tricks.as_strided(np.zeros(1), shape=(3,), strides=(0,))

    class Device:
        __cuda_array_interface__ = {"shape": (1,)}

    a = np.zeros(4)
    cases = [
        (TypeError, "recv", None),
        (TypeError, "send", MPI.BOTTOM),
        (TypeError, "send", np.array([{}], dtype=object)),
        (TypeError, "send", np.zeros(3, dtype=">f8" if np.little_endian else "<f8")),
        (BufferError, "recv", read_only),
        (BufferError, "recv", b"abc"),
        (ValueError, "recv", broadcast),
        (TypeError, "send", Device()),
        (TypeError, "send", 3.5),
        (TypeError, "send", [1.0, 2.0]),
        (TypeError, "send", [a, 1]),
        (ValueError, "send", [a, 5, MPI.DOUBLE]),
        (ValueError, "send", [a, -1, MPI.DOUBLE]),
        (ValueError, "send", [a, (2, 3), MPI.DOUBLE]),
        (ValueError, "send", [a, MPI.DATATYPE_NULL]),
        (ValueError, "send", [np.zeros(3, dtype=np.uint8), MPI.DOUBLE]),
        (ValueError, "send", [np.zeros((4, 4))[:, 1], MPI.DOUBLE]),
        (ValueError, "send", [a, 2**70, MPI.DOUBLE]),
    ]
    with pchan.Channel(comm) as ch:
        for error, kind, buf in cases:
            init = ch.send_init if kind == "send" else ch.recv_init
            with pytest.raises(error, match=rf"{kind}_init \(operation 0"):
                init(buf, comm.rank)
            assert len(ch) == 0


class Device:
    """Stands for an array of CuPy or PyTorch in a GPU's memory."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __dlpack_device__(self):
        return self.dlpack_device


CUDA_INTERFACE = {"shape": (3,), "typestr": "<f8", "data": (1 << 40, False), "version": 3}
DEVICES = {
    "cuda interface": Device(__cuda_array_interface__=CUDA_INTERFACE, dlpack_device=(1, 0)),
    "cuda by dlpack": Device(dlpack_device=(2, 0)),
    "rocm by dlpack": Device(dlpack_device=(10, 1)),
}


@pytest.mark.parametrize("name", DEVICES)
def test_device_arrays_are_refused_with_advice(comm, name):
    array = DEVICES[name]
    with pchan.Channel(comm) as ch:
        for buf in (array, [array, MPI.DOUBLE], [array, 1, MPI.DOUBLE], (array, (1, 0), "d")):
            for init, word in ((ch.send_init, "send_init"), (ch.recv_init, "recv_init")):
                with pytest.raises(
                    TypeError, match=rf"{word} .*Device lies in a device's memory: copy it to a NumPy"
                ):
                    init(buf, comm.rank)
        assert len(ch) == 0


def test_host_arrays_that_speak_dlpack_travel(comm):
    class Host(bytearray):
        def __dlpack_device__(self):
            return 1, 0

    into = bytearray(3)
    exchange_with_self(comm, Host(b"abc"), into)
    assert into == b"abc"


@pytest.mark.parametrize(
    "dtype, view, spec",
    [
        *itertools.product(["f8", "M8[s]"], [np.s_[:], np.s_[1:3], np.s_[::2], np.s_[::-2]], [False]),
        ("f8", np.s_[:], True),
        ("f8", np.s_[1:3], True),
    ],
)
def test_resize_is_refused(comm, dtype, view, spec):
    """Of the array and of those it is a view of, refcheck=False included, until free."""
    a = np.zeros(8, dtype=dtype)
    ch = pchan.Channel(comm)
    ch.recv_init([a[view], MPI.DOUBLE] if spec else a[view], comm.rank)
    for check in (True, False):
        with pytest.raises(ValueError, match="cannot resize"):
            a.resize(1000, refcheck=check)
    ch.free()
    a.resize(1000, refcheck=False)


def test_buffers_live_until_free(comm):
    a = np.arange(3.0)
    ch = pchan.Channel(comm)
    ch.send_init(a, comm.rank)
    with pytest.raises(ValueError):
        a.resize(100)
    into = np.zeros(3)
    ch.recv_init(into, comm.rank)
    del a
    ch.exchange()
    assert np.array_equal(into, [0, 1, 2])
    held = bytearray(3)
    ch.send_init(held, MPI.PROC_NULL)
    with pytest.raises(BufferError):
        held.extend(b"x")
    ch.free()
    held.extend(b"x")
