"""`python -m pchan gram`: SDPB's own digits on any number of ranks; one line for what is wrong."""

import contextlib
import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from run_mpi import run_mpi

import pchan
from pchan import _progress
from pchan.__main__ import main

pytestmark = pytest.mark.mpi

# SHA-256 of Q at 768 bits
SHA256 = {
    "cT_nmax6": "145d6a3f6ca18dd48477c124906d10b103e50c55766babce8c83f6470488a789",
    "dfibo": "5f4b839cb7eb0d3a6a8ccb244b067b5440e246e3324424688dc627579d0df417",
}


def run(*arguments):
    """The command in this process, on all ranks of it."""
    return main(["gram", *map(str, arguments)])


def printed_by_sdpb(folder):
    return json.loads((folder / "iterations.0.json").read_text())[0]["Q_cond_number"]


def common_digits(a, b):
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return sum(c.isdigit() for c in a[:same])


@pytest.mark.sdpb_data
@pytest.mark.parametrize("name", SHA256)
def test_digits_of_sdpb(comm, sdpb, capsys, name):
    assert run(sdpb / name, "--precision", 768) == 0
    out, err = capsys.readouterr()
    assert err == ""
    if comm.rank == 0:
        lines = [line.split() for line in out.splitlines()]
        ((_, digits),) = [line for line in lines if line[0] == "Q_cond_number"]
        assert common_digits(digits, printed_by_sdpb(sdpb / name)) >= 220
        assert SHA256[name] in [line[1] for line in lines if line[0] == "sha256"]
        assert "diagonal and range of Q passed" in out
    else:
        assert out == ""


@pytest.mark.sdpb_data
def test_json_and_npz(comm, sdpb, capsys, tmp_path):
    path = comm.bcast(str(tmp_path / "q.npz"))
    assert run(sdpb / "dfibo", "--precision", 256, "--json", "--output", path) == 0
    out = capsys.readouterr().out
    if comm.rank != 0:
        assert out == ""
        return
    report = json.loads(out)
    assert (report["rows"], report["columns"], report["ranks"]) == (248, 19, comm.size)
    assert report["Q_cond_number"].startswith("1886.3345292596496976750918139609567693")
    with np.load(path) as file:
        precision, n = int(file["precision"]), len(file["norms"])
        q = pchan.limbs_to_ints(file["q"])
    assert (precision, n, len(q)) == (256, 19, 190)
    assert abs(q[0] / 4**precision - 1) < 1e-60


@pytest.mark.sdpb_data
def test_decimal_text(comm, sdpb, capsys, tmp_path):
    path = comm.bcast(str(tmp_path / "q.txt"))
    assert run(sdpb / "dfibo", "--precision", 128, "--output", path) == 0
    if comm.rank == 0:
        rows = [line.split() for line in Path(path).read_text().splitlines()]
        assert len(rows) == 19 and all(len(row) == 19 for row in rows)
        assert rows[2][5] == rows[5][2] and float(rows[0][0]) > 0


def error_line(comm, capsys, *arguments):
    """The one line on rank 0's stderr of a command that fails on every rank."""
    assert run(*arguments) != 0
    out, err = capsys.readouterr()
    assert out == ""
    if comm.rank == 0:
        assert err.count("\n") == 1 and err.endswith("\n")
    else:
        assert err == ""
    return comm.bcast(err)


def test_no_folder(comm, capsys):
    assert "/no/where: no such folder" in error_line(comm, capsys, "/no/where", "--precision", 768)


@pytest.mark.parametrize("precision", ["0", "31", "32768", "-5", "x", "7.5", "9" * 5000])
def test_bad_precision(comm, capsys, precision):
    line = error_line(comm, capsys, "/no/where", f"--precision={precision}")
    assert f"--precision {precision[:40]}" in line


def test_bad_block(comm, capsys, tmp_path):
    folder = comm.bcast(tmp_path)
    if comm.rank == 0:
        (folder / "control.json").write_text('{"num_blocks": 1}')
        (folder / "block_info_0.json").write_text('{"dim": 1, "num_points": 1}')
        (folder / "block_data_0.json").write_text('{"bilinear_bases_even": [["a\\nb"]], "bilinear_bases_odd": []}')
    comm.Barrier()
    line = error_line(comm, capsys, folder, "--precision", 768)
    assert "block_data_0.json, block 0: key 'bilinear_bases_even', row 0, column 0:" in line


@pytest.mark.sdpb_data
def test_output_that_cannot_be_written(comm, sdpb, capsys, tmp_path):
    for name in ("q.txt", "q.npz"):
        line = error_line(comm, capsys, sdpb / "dfibo", "--precision", 64, "--output", f"/no/where/{name}")
        assert f"/no/where/{name}: No such file" in line


@pytest.mark.launcher
def test_exit_code_of_a_job():
    done = run_mpi(2, [sys.executable, "-m", "pchan", "gram", "/no/where", "--precision", "768"])
    assert done.returncode != 0 and done.stdout == ""
    assert "/no/where: no such folder" in done.stderr and "Traceback" not in done.stderr


# ---- NumPy files ----


def saved(comm, tmp_path, name, **arrays):
    """A file that rank 0 writes: the array of a .npy, or the keys of a .npz."""
    path = Path(comm.bcast(str(tmp_path / name)))
    if comm.rank == 0:
        np.save(path, arrays["P"]) if name.endswith("npy") else np.savez(path, **arrays)
    comm.Barrier()
    return path


def report_of(comm, capsys, *arguments):
    assert run(*arguments, "--json") == 0
    out = capsys.readouterr().out
    return comm.bcast(json.loads(out) if comm.rank == 0 else None)


def test_numpy_files(comm, capsys, tmp_path):
    ints = [[3 * i * j - 7 * j + 2**70 * (i == j) for j in range(4)] for i in range(9)]
    limbs, digests = pchan.ints_to_limbs(ints, 2), set()
    for name, arrays, options in [
        ("p.npy", {"P": limbs}, ["--scale-bits", 5]),
        ("p.npz", {"P": limbs, "scale_bits": 5}, []),
        ("q.npz", {"anything": limbs}, ["--scale-bits", 5]),
    ]:
        path = saved(comm, tmp_path, name, **arrays)
        report = report_of(comm, capsys, path, "--precision", 100, *options)
        assert (report["rows"], report["columns"], report["input"]) == (9, 4, str(path)) and report["check"]
        digests.add(report["sha256"])
    fractions = [[Fraction(x, 32) for x in row] for row in ints]
    assert digests == {pchan.gram(fractions[comm.rank :: comm.size], comm, 100).sha256()}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "g"])
def test_numbers_in_a_file(comm, capsys, tmp_path, dtype):
    array = (np.arange(21).reshape(7, 3) ** 2 % 13).astype(dtype)
    path = saved(comm, tmp_path, "p.npy", P=array)
    report = report_of(comm, capsys, path, "--precision", 64, "--memory", 10**9)
    assert report["sha256"] == pchan.gram(array[comm.rank :: comm.size].tolist(), comm, 64).sha256()


BAD_FILES = {
    "NaN": ("p.npy", {"P": np.array([[1.0, 2], [3, np.nan]])}, [], "p.npy: row 1, column 1 is NaN"),
    "infinite": ("p.npz", {"P": np.array([[-np.inf]])}, [], "p.npz, key 'P': row 0, column 0 is infinite"),
    "1-D": (
        "p.npy",
        {"P": np.ones(3)},
        [],
        r"p.npy: must be real numbers [rows, columns], not float64 of shape (3,)",
    ),
    "no rows": ("p.npy", {"P": np.ones((0, 3))}, [], "p.npy: empty"),
    "complex": ("p.npy", {"P": np.ones((2, 2), complex)}, [], "not complex128"),
    "objects": ("p.npz", {"P": np.array([[1, None]])}, [], "p.npz, key 'P': Object arrays"),
    "two keys": (
        "p.npz",
        {"a": np.ones((2, 2)), "b": np.ones(1)},
        [],
        "p.npz: key 'P' is missing; there are a, b",
    ),
    "no scale": ("p.npy", {"P": np.ones((1, 2, 3), np.uint64)}, [], "limbs need --scale-bits"),
    "a scale": (
        "p.npy",
        {"P": np.ones((1, 2))},
        ["--scale-bits", 3],
        "limbs must be uint64[rows, columns, limbs]",
    ),
    "bad scale": ("p.npz", {"P": np.ones((1, 1, 1), np.uint64), "scale_bits": np.ones(2)}, [], "key 'scale_bits'"),
    "wrong scale": (
        "p.npy",
        {"P": np.ones((1, 2))},
        ["--scale-bits", "x"],
        "--scale-bits x: not a number of bits",
    ),
    "memory": ("p.npy", {"P": np.ones((1, 2))}, ["--memory", 10], "memory = 10 bytes are too few"),
    "bad memory": ("p.npy", {"P": np.ones((1, 2))}, ["--memory", "-1"], "--memory -1: not a number of bytes"),
}


@pytest.mark.parametrize(("name", "arrays", "options", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_numpy_file(comm, capsys, tmp_path, name, arrays, options, message):
    path = saved(comm, tmp_path, name, **arrays)
    options = [f"{options[0]}={options[1]}"] if options else []
    assert message in error_line(comm, capsys, path, "--precision", 64, *options)


@pytest.mark.parametrize("name", ["p.npy", "p.npz"])
@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00garbage", b"PK\x03\x04 broken"])
def test_file_that_is_no_numpy_file(comm, capsys, tmp_path, name, content):
    path = Path(comm.bcast(str(tmp_path / name)))
    if comm.rank == 0:
        path.write_bytes(content)
    comm.Barrier()
    assert f"{path}: not a NumPy file" in error_line(comm, capsys, path, "--precision", 64)


def test_no_numpy_file(comm, capsys):
    assert "/no/where.npy: No such file" in error_line(comm, capsys, "/no/where.npy", "--precision", 64)


# ---- checks and the bar ----


def test_exit_code_of_a_check_that_fails(comm, capsys, tmp_path, monkeypatch):
    path = saved(comm, tmp_path, "p.npy", P=np.ones((3, 1)))
    monkeypatch.setattr(pchan.Gram, "_diagonal_passes", lambda self: self.q.comm.rank != self.q.comm.size - 1)
    assert run(path, "--precision", 64) == 3
    out = capsys.readouterr().out
    assert comm.rank or "check      diagonal and range of Q FAILED" in out


def test_singular_matrix(comm, capsys, tmp_path):
    path = saved(comm, tmp_path, "p.npy", P=np.ones((3, 2)))
    assert "Q is singular" in error_line(comm, capsys, path, "--precision", 64)


@pytest.mark.parametrize("library", ["rich", "tqdm"])
def test_bar(comm, capsys, tmp_path, monkeypatch, library):
    """On a terminal only, on rank 0 only, and by what is installed."""
    pytest.importorskip(library)
    path = saved(comm, tmp_path, "p.npy", P=np.eye(4))
    drawn = []
    draw = getattr(_progress, f"_{library}")

    @contextlib.contextmanager
    def spied(label):
        with draw(label) as progress:
            yield lambda done, total: (drawn.append((done, total)), progress(done, total))

    monkeypatch.setattr(_progress, "_library", lambda: spied)
    assert run(path, "--precision", 64) == 0 and drawn == []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run(path, "--precision", 64) == 0
    assert comm.rank == 0 or drawn == []
    if comm.size == 1:
        assert drawn == [(1, 1)]


def test_no_bar_without_a_library(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for name in ("rich.progress", "tqdm"):
        monkeypatch.setitem(sys.modules, name, None)
    with _progress.bar("nothing", True) as progress:
        assert progress is None
