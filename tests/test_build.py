"""setup.py: which MPI compilers it finds, and what it takes from them."""

import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.launcher
pytest.importorskip("setuptools")
ROOT = Path(__file__).resolve().parent.parent
build = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


@pytest.fixture
def wrapper(tmp_path):
    """Makes a compiler wrapper that shows what it is told to, and has an mpi.h of its own."""

    def make(name, shown="-I/mpi/include -L/mpi/lib -lmpi", macros=""):
        folder = tmp_path / f"{name}-files"
        folder.mkdir()
        (folder / "mpi.h").write_text("".join(f"#define {macro}\n" for macro in macros.split()))
        path = tmp_path / name
        path.write_text(
            f'#!/bin/sh\n[ "$1" = -show ] && {{ echo {shlex.quote("cc " + shown)}; exit; }}\nexec cc -I{folder} "$@"\n'
        )
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("PCHAN_BUILD_MPICC", "MPICC"):
        monkeypatch.delenv(name, raising=False)


def test_the_named_wrapper_comes_first(wrapper, monkeypatch):
    path, other, third = (wrapper(name) for name in ("mpicc", "other", "third"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(path).parent), os.environ["PATH"]]))
    assert build["wrappers"]()[0] == path
    monkeypatch.setenv("MPICC", other)
    assert build["wrappers"]() == [other]
    monkeypatch.setenv("PCHAN_BUILD_MPICC", os.pathsep.join([third, other]))
    assert build["wrappers"]() == [third, other]
    monkeypatch.setenv("PCHAN_BUILD_MPICC", "/no/such/mpicc")
    with pytest.raises(SystemExit, match="/no/such/mpicc"):
        build["wrappers"]()


@pytest.mark.parametrize(
    ("macros", "abi"),
    [
        ("MPICH_NAME", "mpich"),
        ("OPEN_MPI", "openmpi"),
        ("MPI_ABI_VERSION", "abi"),
        ("MPI_ABI_VERSION MPICH_NAME", "mpich"),
    ],
)
def test_the_abi_is_told_by_macros(wrapper, macros, abi):
    assert build["abi_of"](wrapper("mpicc", macros=macros)) == abi


def test_an_mpi_that_nobody_knows(wrapper):
    with pytest.raises(SystemExit, match="mpicc cannot compile"):
        build["abi_of"](wrapper("mpicc"))


@pytest.mark.parametrize(
    "rpath",
    [
        "-Wl,-rpath,/mpi/lib",
        "-Wl,-rpath -Wl,/mpi/lib -Wl,--enable-new-dtags",
        "-Xlinker --enable-new-dtags -Xlinker -rpath -Xlinker /mpi/lib",
        "-Wl,-rpath-link,/mpi/lib -Wl,-rpath=/mpi/lib",
    ],
)
def test_every_rpath_is_dropped_and_nothing_else(wrapper, rpath):
    shown = f"-I/mpi/include -DX=1 -Wl,-z,relro -L/mpi/lib {rpath} -Xlinker --as-needed -lmpi"
    kept = ["-I/mpi/include", "-DX=1", "-Wl,-z,relro", "-L/mpi/lib", "-Wl,--as-needed", "-lmpi"]
    assert build["flags_of"](wrapper("mpicc", shown)) == kept


def test_without_an_mpi_compiler_the_cure_is_named(tmp_path):
    """And no traceback. The folder of this Python may hold an mpicc, so look from a Python elsewhere."""
    elsewhere = "import sysconfig, sys; sysconfig.get_path = lambda *a: '/'; sys.prefix = '/'; sys.argv = {!r}; "
    code = elsewhere.format(["setup.py", "-q", "build_ext", "-b", str(tmp_path), "-t", str(tmp_path)])
    code += f"import runpy; runpy.run_path({str(ROOT / 'setup.py')!r}, run_name='__main__')"
    environment = {"PATH": "/no/folder", "HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 1 and "Traceback" not in run.stderr
    assert "pip install mpich" in run.stderr and "PCHAN_BUILD_MPICC" in run.stderr
