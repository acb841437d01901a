"""`python -m pchan gram`: SDPB's own digits on any number of ranks; one line for what is wrong."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from run_mpi import run_mpi

import pchan
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
