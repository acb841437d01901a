"""import pchan: the build must fit mpi4py's MPI, and the refusal says what to do."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from run_mpi import clean_environment

import pchan
from pchan import _select

pytestmark = pytest.mark.launcher
PACKAGE = Path(pchan.__file__).parent


def python(code, path, **env):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    env = clean_environment(PYTHONPATH=str(path), **env)
    return subprocess.run(command, env=env, capture_output=True, text=True, cwd="/", timeout=60)


def copy_with(builds, folder):
    """A copy of the installed package with these builds only."""
    shutil.copytree(
        PACKAGE, folder / "pchan", ignore=lambda d, names: [n for n in names if n.startswith("_core_")]
    )
    for source, target in builds:
        shutil.copy(next(PACKAGE.glob(f"_core_{source}.*.so")), folder / "pchan" / f"_core_{target}.so")
    return folder


needs_abi = pytest.mark.skipif(
    "abi" not in _select.installed_builds() or _select.abi_of_mpi4py() == "abi",
    reason="needs a build for another ABI than mpi4py's to provoke the mismatch",
)


@needs_abi
def test_a_build_for_another_abi_is_refused_in_one_sentence(tmp_path):
    run = python("import pchan", copy_with([("abi", "abi")], tmp_path))
    last = run.stderr.strip().splitlines()[-1]
    assert run.returncode == 1 and last.startswith("ImportError: mpi4py uses MPICH")
    assert "pchan was built for the MPI standard ABI" in last and "PCHAN_BUILD_MPICC=" in last


@needs_abi
def test_the_extension_itself_refuses_another_library(tmp_path):
    """Should the choice ever be wrong: the C core compares handles and functions before anything else."""
    code = """
        import sys, types
        import mpi4py.MPI
        sys.modules["pchan"] = package = types.ModuleType("pchan")
        package.__path__ = [PATH]
        import pchan._core_abi
        """
    libraries = os.pathsep.join([f"{sys.prefix}/lib", os.environ.get("LD_LIBRARY_PATH", "")])
    run = python(code.replace("PATH", repr(str(PACKAGE))), "/", LD_LIBRARY_PATH=libraries)
    last = run.stderr.strip().splitlines()[-1]
    assert run.returncode == 1 and last.startswith(
        "ImportError: pchan was built for another MPI library than mpi4py's"
    )
    assert "mpi4py uses MPICH" in last and "libmpi_abi" in last and "pip install" in last


@pytest.mark.skipif(_select.abi_of_mpi4py() != "mpich", reason="knows the name of MPICH's library only")
def test_a_build_whose_library_is_not_there(tmp_path):
    """As where another MPI of the same ABI goes by another file name."""
    folder = copy_with([("mpich", "mpich")], tmp_path)
    extension = folder / "pchan" / "_core_mpich.so"
    extension.write_bytes(extension.read_bytes().replace(b"libmpi.so.12", b"libmpi.so.99"))
    run = python("import pchan", folder)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: mpi4py uses") and run.stderr.count("ImportError:") == 1
    assert "libmpi.so.99" in last and "PCHAN_BUILD_MPICC=" in last


def test_no_build_at_all(tmp_path):
    run = python("import pchan", copy_with([], tmp_path))
    assert "pchan was built for no MPI at all" in run.stderr.splitlines()[-1]


def test_a_checkout_uses_the_installed_builds(tmp_path):
    """`python -m pchan` in the repository finds the source folder first."""
    folder = copy_with([], tmp_path)
    (folder / "setup.py").touch()
    run = python("import pchan, pchan.examples; print(pchan.__file__); print(pchan._core.__file__)", folder)
    source, build = run.stdout.split()
    assert source.startswith(str(folder)) and build.startswith(str(PACKAGE))
    hide = "import sys, mpi4py.MPI; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
    run = python(hide + "import pchan", folder)
    assert "source folder" in run.stderr.splitlines()[-1] and "pip install" in run.stderr


def test_extensions_have_no_rpath_to_an_mpi():
    """Python's own may be there."""
    if not shutil.which("readelf"):
        pytest.skip("no readelf here")
    for library in PACKAGE.glob("_core_*.so"):
        shown = subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
        folders = re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", shown)
        assert not [f for line in folders for f in line.split(":") if list(Path(f).glob("libmpi*"))]


def test_the_public_names():
    for name in pchan.__all__:
        assert getattr(pchan, name).__doc__, name
    assert callable(pchan.gram) and pchan.__version__
    assert issubclass(pchan.StateError, RuntimeError) and issubclass(pchan.MatchError, ValueError)
    assert issubclass(pchan.RangeError, ArithmeticError)
