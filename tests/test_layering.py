"""The arrows between layers: the pure stages never see MPI, the core never sees Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parent.parent / "csrc"
PURE = (
    "status alloc limbs wide fixed kernels primes residues pack restore restore_reference layout pairing edge copy cma"
).split()


def closure(path, seen=None):
    """All headers that a file includes, by text."""
    seen = set() if seen is None else seen
    for quoted, system in re.findall(r'#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', path.read_text()):
        if system:
            seen.add(system)
        elif (target := (path.parent / quoted).resolve()) not in seen:
            seen.add(target)
            closure(target, seen)
    return seen


@pytest.mark.parametrize("name", PURE)
def test_pure_stages_do_not_see_mpi(name):
    """They include pchan.h only by way of pch_pure.h, which leaves mpi.h out."""
    source = CSRC / "core" / f"{name}.c"
    headers = closure(source)
    assert (CSRC / "core" / "pch_mpi.h").resolve() not in headers
    assert not re.search(r"\bMPI_\w+\(", source.read_text())
    first = re.search(r'#include "([^"]+)"', source.read_text()).group(1)
    assert first in ("pch_pure.h", "pch_basis.h", "pch_layout.h", "pch_edge.h", "pch_connect.h", "pch_wide.h")
    if shutil.which("gcc"):
        run = subprocess.run(
            ["gcc", "-std=c11", "-D_GNU_SOURCE", "-fsyntax-only", source], capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr  # compiles where there is no mpi.h


def test_every_core_file_is_known_to_be_pure_or_not():
    for source in (CSRC / "core").glob("*.c"):
        pure = (CSRC / "core" / "pch_mpi.h").resolve() not in closure(source)
        assert pure == (source.stem in PURE), source.name


def test_the_core_does_not_see_python():
    for source in [CSRC / "pchan.h", *(CSRC / "core").iterdir(), *(CSRC / "tests").iterdir()]:
        assert "Python.h" not in source.read_text(), source


@pytest.mark.parametrize("mpi", [False, True])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_header_compiles_alone(language, mpi):
    name = {"c": ("gcc", "mpicc"), "c++": ("g++", "mpicxx")}[language][mpi]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    compiler = shutil.which(name, path=path)
    if not compiler:
        pytest.skip(f"no {name} here")
    standard = {"c": "-std=c11", "c++": "-std=c++11"}[language]
    command = [compiler, "-x", language, standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-"]
    code = f'#include "{CSRC / "pchan.h"}"\nint main(void) {{ return PCHAN_OK; }}\n'
    run = subprocess.run(
        command, input=code if mpi else "#define PCHAN_NO_MPI\n" + code, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_every_declaration_says_collective_or_local():
    """Each public function of the MPI part stands under a comment that says which it is."""
    text = (CSRC / "pchan.h").read_text()
    blocks = re.findall(r"/\*(?:[^*]|\*(?!/))*\*/|PCHAN_API[^;]*;", text)
    comment = ""
    for block in blocks:
        if block.startswith("/*"):
            comment = block
        elif "pchan_status pchan_" in block:
            name = re.search(r"(pchan_\w+)\(", block).group(1)
            words = ("Local", "Collective", "As wait", "As pchan", "The same", "local", "Waits for", "Finishes")
            assert any(word in comment for word in words), name
