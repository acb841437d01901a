"""Finds the build of the C core that fits the MPI library mpi4py has loaded."""

from __future__ import annotations

import importlib
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

BUILDS = {"mpich": "MPICH's ABI", "openmpi": "Open MPI's ABI", "abi": "the MPI standard ABI"}


def installed_builds() -> list[str]:
    """Names of the ABIs that the core was compiled for."""
    return [abi for abi in BUILDS if util.find_spec(f"pchan._core_{abi}")]


def abi_of_mpi4py() -> str:
    """The ABI of mpi4py's MPI, "mpich", "openmpi" or "abi"."""
    from mpi4py import MPI

    if getattr(MPI, "Get_abi_version", lambda: (-1, -1))()[0] > 0:
        return "abi"
    return "mpich" if MPI._sizeof(MPI.Comm) == 4 else "openmpi"


def mpi_library() -> str:
    """mpi4py's, in one line."""
    from mpi4py import MPI

    return MPI.Get_library_version().strip("\0").partition("\n")[0]


def _mismatch(wanted: str, present: list[str], why: str = "") -> str:
    if not present and (Path(__file__).parent.parent / "setup.py").exists():
        return "this is pchan's source folder, and pchan is not installed: run `pip install .` first"
    why = why or "pchan was built for " + (" and ".join(BUILDS[abi] for abi in present) or "no MPI at all")
    wrapper = "mpicc_abi" if wanted == "abi" else "mpicc"
    return (
        f"mpi4py uses {mpi_library()} with {BUILDS[wanted]}, but {why}. Rebuild pchan with the "
        f"compiler of mpi4py's MPI: PCHAN_BUILD_MPICC=/path/to/{wrapper} pip install --no-cache-dir "
        "--force-reinstall --no-deps pchan (or give the path of its source)"
    )


def _use_installed_builds() -> None:
    """In a checkout `python -m pchan` finds this folder first: take the builds from the installed package."""
    here = Path(__file__).resolve().parent
    if not (here.parent / "setup.py").exists() or installed_builds():
        return
    for entry in sys.path:
        folder = Path(entry).resolve() / "pchan"
        if folder != here and any(folder.glob("_core_*")):
            sys.modules["pchan"].__path__.append(str(folder))
            importlib.invalidate_caches()
            return


def load() -> ModuleType:
    """The fitting build, also registered as ``pchan._core``. ImportError when there is none."""
    _use_installed_builds()
    wanted, present = abi_of_mpi4py(), installed_builds()
    if wanted not in present:
        raise ImportError(_mismatch(wanted, present))
    try:
        core = importlib.import_module(f"pchan._core_{wanted}")
    except ImportError as e:
        if e.path is None:  # the module's own refusal, or something that it imports
            raise
        raise ImportError(_mismatch(wanted, present, f"pchan's build for it does not load ({e})")) from None
    sys.modules["pchan._core"] = core
    return core
