"""The examples, against other ways to the same numbers; each is short and runs on any number of ranks."""

import os
import shlex
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from oracle import exact_gram
from pchan.examples import conjugate_gradients, halo3d, heat_picture, normal_equations
from run_mpi import clean_environment, run_mpi

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.mpi
@pytest.mark.parametrize("n", [22, 41])
def test_heat_is_that_of_a_serial_run(comm, n):
    u = [heat_picture.initial(n) for _ in range(2)]
    for k in range(31):
        around = u[k % 2][:-2, 1:-1] + u[k % 2][2:, 1:-1] + u[k % 2][1:-1, :-2] + u[k % 2][1:-1, 2:]
        u[1 - k % 2][1:-1, 1:-1] = 0.2 * u[k % 2][1:-1, 1:-1] + 0.2 * around
    whole = heat_picture.run(comm, n, 31)
    assert (whole is None) == (comm.rank != 0)
    if whole is not None:
        np.testing.assert_array_equal(whole, u[1])
        assert 0 < whole.max() < 1


@pytest.mark.mpi
def test_heat_refuses_blocks_of_one_row(comm):
    if comm.size == 1:
        assert heat_picture.run(comm, 4, 1).shape == (4, 4)
    else:
        with pytest.raises(ValueError, match="too small"):
            heat_picture.run(comm, 5, 1)


def test_pictures(tmp_path):
    u = np.array([[0.0, 1.0, 3.0], [2.0, 1.5, 0.0]])
    heat_picture.picture(str(tmp_path / "u.ppm"), u)
    header, pixels = (tmp_path / "u.ppm").read_bytes().split(b"\n", 1)
    assert header == b"P6 3 2 255"
    np.testing.assert_array_equal(
        np.frombuffer(pixels, np.uint8).reshape(2, 3, 3),
        [[[0, 0, 0], [255, 0, 0], [255, 255, 255]], [[255, 255, 0], [255, 127, 0], [0, 0, 0]]],
    )


@pytest.mark.launcher
def test_picture_by_matplotlib(tmp_path):
    pytest.importorskip("matplotlib")
    heat_picture.picture(str(tmp_path / "u.png"), np.eye(3))
    assert (tmp_path / "u.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.mpi
@pytest.mark.parametrize("shape", [(8, 12, 10), (1, 2, 3), (40, 3, 33)])
def test_halo_of_three_dimensions(comm, shape):
    report = halo3d.run(comm, shape)
    assert report["halo_error"] == report["laplacian_error"] == 0
    x, y, z = shape
    assert report["bytes_sent"] == 16 * (x * y + y * z + z * x)


@pytest.mark.mpi
@pytest.mark.parametrize("n", [3, 60])
def test_conjugate_gradients_find_the_solution(comm, n):
    report = conjugate_gradients.run(comm, n)
    assert report["residual"] < 2e-12 and report["error"] < 1e-9 and 0 < report["steps"] < 10 * n


@pytest.mark.mpi
@pytest.mark.parametrize(("m", "n"), [(500, 4), (7, 1)])
def test_normal_equations_are_the_exact_ones_rounded_once(comm, m, n):
    report = normal_equations.run(comm, m, n)
    assert bool(report) == (comm.rank == 0)
    if report:
        table = [[Fraction(x) for x in row] for row in normal_equations.rows(range(m), n).tolist()]
        q = exact_gram(table)
        assert report["sha256_of_q"] == normal_equations.digest(np.array(q, dtype=object).astype(float))
        with mpmath.workprec(2000):  # another way to x
            a = mpmath.matrix([[mpmath.mpf(x.numerator) / x.denominator for x in row[:n]] for row in q[:n]])
            b = mpmath.matrix([mpmath.mpf(row[n].numerator) / row[n].denominator for row in q[:n]])
            assert [float(x) for x in mpmath.lu_solve(a, b)] == report["x"].tolist()


@pytest.mark.launcher
def test_normal_equations_print_the_same_digests_on_1_to_4_ranks():
    printed = []
    for n in (1, 2, 3, 4):
        run = run_mpi(n, [sys.executable, "-m", "pchan.examples.normal_equations"])
        assert run.returncode == 0 and run.stderr == "", run.stderr
        printed.append(dict(line.split(": ") for line in run.stdout.splitlines()))
    assert [p["ranks"] for p in printed] == ["1", "2", "3", "4"]
    for name in ("x", "sha256_of_x", "sha256_of_q"):
        assert len({p[name] for p in printed}) == 1, name
    assert len(printed[0]["sha256_of_x"]) == 64


@pytest.mark.launcher
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["heat_picture", "halo3d", "conjugate_gradients"])
def test_examples_run_as_programs(name, n, tmp_path):
    arguments = [str(tmp_path / "heat.ppm")] if name == "heat_picture" else []
    run = run_mpi(n, [sys.executable, "-m", f"pchan.examples.{name}", *arguments])
    assert run.returncode == 0 and run.stdout and run.stderr == "", run.stdout + run.stderr
    if arguments:
        assert Path(arguments[0]).stat().st_size == len(b"P6 130 130 255\n") + 3 * 130 * 130


@pytest.mark.launcher
def test_the_c_program_as_its_comment_says(tmp_path):
    """The commands in the comment, with other places for what they write."""
    text = (ROOT / "examples" / "ring.c").read_text()
    build, link = (line[5:] for line in text.splitlines() if line.startswith(" *   "))
    assert build == "make -C csrc" and link.startswith("mpicc ")
    library, program = tmp_path / "build", str(tmp_path / "ring")
    mpicc = os.environ.get("MPICC") or shutil.which("mpicc") or str(Path(sys.executable).with_name("mpicc"))
    command = link.partition(" && ")[0].replace("csrc/build", str(library)).replace("-o ring", f"-o {program}")
    flags = ["-Wall", "-Wextra", "-Werror"]
    make = [*shlex.split(build), "-j2", f"BUILD={library}", f"MPICC={mpicc}"]
    for arguments in (make, [mpicc, *flags, *shlex.split(command)[1:]]):
        done = subprocess.run(arguments, cwd=ROOT, env=clean_environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for n in (1, 2, 3, 4):
        run = run_mpi(n, [program])
        assert run.returncode == 0 and run.stderr == "", run.stderr
        assert run.stdout.startswith(f"{n} ranks, 48 bytes by ") and run.stdout.endswith(": home again\n")


def test_examples_are_short():
    for path in (ROOT / "examples").glob("*.[cp]*"):
        assert len(path.read_text().splitlines()) < 100, path.name
