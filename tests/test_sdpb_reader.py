"""pchan.sdpb: P from SDPB's JSON, and faults that name file, block and key."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from mpi4py import MPI
from oracle import exact_gram, fraction_of
from sdp_folder import BLOCKS, write_sdp_folder

import pchan
from pchan import sdpb

pytestmark = pytest.mark.mpi


@pytest.fixture
def folder(comm, tmp_path):
    """One folder for all ranks, written by rank 0."""
    path = Path(comm.bcast(str(tmp_path)))
    if comm.rank == 0:
        write_sdp_folder(path)
    comm.Barrier()
    return path


def inverse(s):
    if len(s) == 1:
        return [[1 / s[0][0]]]
    (a, b), (_, d) = s
    det = a * d - b * b
    return [[d / det, -b / det], [-b / det, a / det]]


def exact_q():
    """Sum of B^T S^-1 B over the blocks, in Fractions."""
    q = [[Fraction(0)] * 3 for _ in range(3)]
    for block in BLOCKS:
        s = [[Fraction(0)] * len(block["B"]) for _ in block["B"]]
        for key in ("bilinear_bases_even", "bilinear_bases_odd"):
            if block[key]:
                products = exact_gram(block[key])
                s = [[x + y**2 for x, y in zip(a, b, strict=True)] for a, b in zip(s, products, strict=True)]
        b, w = [[Fraction(x) for x in row] for row in block["B"]], inverse(s)
        for i in range(3):
            for j in range(3):
                q[i][j] += sum(b[k][i] * w[k][m] * b[m][j] for k in range(len(b)) for m in range(len(b)))
    return q


def test_p_gives_the_q_of_the_blocks(comm, folder):
    p = sdpb.read(str(folder), comm, 200)
    assert (p.n, p.n_rows, p.n_blocks) == (3, 5, 3)
    assert sorted(k for blocks in comm.allgather(p.blocks) for k in blocks) == [0, 1, 2]
    matrix = pchan.gram(p.rows, comm, 200).gather()
    if comm.rank == 0:
        for row, exact_row in zip(matrix, exact_q(), strict=True):
            assert all(abs(fraction_of(x) - y) < Fraction(1, 2**180) for x, y in zip(row, exact_row, strict=True))


def test_rows_are_those_of_one_rank(comm, folder):
    p = sdpb.read(folder, comm, 100)
    blocks = {k: [[x._mpf_ for x in row] for row in rows] for k, rows in by_block(p).items()}
    alone = by_block(sdpb.read(folder, MPI.COMM_SELF, 100))
    assert blocks == {k: [[x._mpf_ for x in row] for row in alone[k]] for k in blocks}


def by_block(p):
    rows = iter(p.rows)
    return {k: [next(rows) for _ in BLOCKS[k]["B"]] for k in p.blocks}


def test_costly_blocks_are_spread():
    owners = sdpb._deal([1, 30, 2, 29, 28, 1], 3)
    assert sorted(owners[k] for k in (1, 3, 4)) == [0, 1, 2]
    assert owners[1] == 0


def spoil(comm, path, change):
    """Rank 0 rewrites a file: its content, None to remove it, or keys to change."""
    if comm.rank == 0:
        if change is None:
            path.unlink()
        elif isinstance(change, str | bytes):
            path.write_bytes(change if isinstance(change, bytes) else change.encode())
        else:
            data = json.loads(path.read_text()) | change
            path.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))
    comm.Barrier()


FAULTS = {
    "no control": ("control.json", None, OSError, "No such file"),
    "no info": ("block_info_1.json", None, OSError, "No such file"),
    "no data": ("block_data_2.json", None, OSError, "No such file"),
    "not JSON": ("block_data_1.json", "{", ValueError, "not JSON"),
    "not text": ("block_info_0.json", b"\xff\xfe", ValueError, "not JSON"),
    "deep": ("block_data_1.json", "[" * 100_000, ValueError, "not JSON"),
    "not an object": ("control.json", "[3]", ValueError, "not a JSON object"),
    "no key in control": ("control.json", {"num_blocks": None}, ValueError, "key 'num_blocks' is missing"),
    "too many blocks": ("control.json", {"num_blocks": 4}, OSError, "block_info_3.json"),
    "no blocks": ("control.json", {"num_blocks": 0}, ValueError, "key 'num_blocks' is 0"),
    "text for a number": ("block_info_1.json", {"num_points": "1"}, ValueError, "key 'num_points' is '1'"),
    "dim": ("block_info_1.json", {"dim": 2}, ValueError, "block 1: key 'dim' is 2"),
    "no B": ("block_data_0.json", {"B": None}, ValueError, "block 0: key 'B' is missing"),
    "B is no list": ("block_data_0.json", {"B": "7"}, ValueError, "block 0: key 'B' is not a list"),
    "B is short": ("block_data_0.json", {"B": [["1", "2", "3"]]}, ValueError, "block 0: key 'B' has 1 rows"),
    "B is ragged": ("block_data_0.json", {"B": [["1"], ["1", "2"]]}, ValueError, "key 'B', row 1 has 2 columns"),
    "B is narrow": ("block_data_1.json", {"B": [["1", "2"]]}, ValueError, "block 1: key 'B' has 2 columns"),
    "B is empty": ("block_data_1.json", {"B": [[]]}, ValueError, "key 'B', row 0 has 0 columns"),
    "basis": (
        "block_data_2.json",
        {"bilinear_bases_odd": [["1"]]},
        ValueError,
        "'bilinear_bases_odd', row 0 has 1",
    ),
    "S": ("block_data_1.json", {"bilinear_bases_even": [["0"]]}, ValueError, "block 1: .*not positive definite"),
    "word": ("block_data_1.json", {"B": [["1", "x", "2"]]}, ValueError, "row 0, column 1: 'x' is not a decimal"),
    "nan": ("block_data_1.json", {"B": [["1", "nan", "2"]]}, ValueError, "column 1: 'nan' is not a decimal"),
    "inf": ("block_data_1.json", {"B": [["1", "2", "-inf"]]}, ValueError, "column 2: '-inf' is not a decimal"),
    "quotient": ("block_data_1.json", {"B": [["1/3", "2", "1"]]}, ValueError, "'1/3' is not a decimal"),
    "number": ("block_data_1.json", {"B": [["1", "2", 3.5]]}, ValueError, "column 2: 3.5 is not a decimal"),
    "exponent": (
        "block_data_1.json",
        {"B": [["1", "2", "1e9999999"]]},
        ValueError,
        "'1e9999999' is not a decimal",
    ),
}


@pytest.mark.parametrize(("name", "change", "error", "message"), FAULTS.values(), ids=FAULTS)
def test_faults(comm, folder, name, change, error, message):
    spoil(comm, folder / name, change)
    with pytest.raises(error, match=message) as caught:
        sdpb.read(folder, comm, 100)
    assert name in str(caught.value) or "block_info_3.json" in str(caught.value)
    messages = comm.allgather(str(caught.value))
    assert (
        len({text.removeprefix("rank 0: ").removeprefix("rank 1: ").removeprefix("rank 2: ") for text in messages})
        == 1
    )


def test_no_folder(comm, tmp_path):
    with pytest.raises(OSError, match="nowhere: no such folder"):
        sdpb.read("/nowhere", comm, 100)
    with pytest.raises(TypeError):
        sdpb.read(3, comm, 100)
    with pytest.raises(ValueError, match="precision = 0"):
        sdpb.read("/nowhere", comm, 0)


@pytest.mark.sdpb_data
@pytest.mark.parametrize(("name", "rows", "n", "blocks"), [("cT_nmax6", 322, 20, 11), ("dfibo", 248, 19, 98)])
def test_sdpb_data(comm, request, name, rows, n, blocks):
    p = sdpb.read(request.getfixturevalue("sdpb") / name, comm, 64)
    assert (p.n_rows, p.n, p.n_blocks) == (rows, n, blocks)
    assert sum(comm.allgather(len(p.rows))) == rows
