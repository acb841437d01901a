"""Compiles csrc once per MPI ABI whose compiler wrapper is found; pyproject.toml has the rest."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NO_COMPILER = """
pchan needs an MPI compiler wrapper (mpicc) to build, and found none.
  pip install mpich                      into the same environment, or
  apt install libmpich-dev mpich         (dnf install mpich-devel, conda install mpich), or
  module load mpich                      on a cluster,
or name one: PCHAN_BUILD_MPICC=/path/to/mpicc pip install ."""


def wrappers():
    """Compiler wrappers in order of preference, as absolute paths."""
    named = os.environ.get("PCHAN_BUILD_MPICC") or os.environ.get("MPICC")
    if named:
        found = [
            shutil.which(name) or sys.exit(f"pchan: no such MPI compiler: {name}")
            for name in named.split(os.pathsep)
        ]
        return found
    # under pip's build isolation "scripts" is still that of the environment pip installs into
    path = os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts"), f"{sys.prefix}/bin"])
    return [w for w in (shutil.which(name, path=path) for name in ("mpicc", "mpicc_abi")) if w]


def abi_of(wrapper):
    """The ABI that a wrapper compiles for, told by the macros of its mpi.h."""
    with tempfile.TemporaryDirectory() as folder:  # given "-", Open MPI's wrapper leaves its -I out
        probe = Path(folder, "probe.c")
        probe.write_text("#include <mpi.h>\n")
        run = subprocess.run([wrapper, "-E", "-dM", str(probe)], capture_output=True, text=True)
    macros = {line.split()[1] for line in run.stdout.splitlines() if line.startswith("#define ")}
    if "MPICH_NAME" in macros:
        return "mpich"  # and all that share its ABI: Intel MPI, MVAPICH, Cray
    if "OPEN_MPI" in macros:
        return "openmpi"
    if "MPI_ABI_VERSION" in macros:
        return "abi"
    sys.exit(f"pchan: {wrapper} cannot compile '#include <mpi.h>' for an MPI that pchan knows:\n{run.stderr}")


def flags_of(wrapper):
    """What the wrapper adds to the compiler's command line, without any rpath: at run time the
    library that mpi4py has loaded is found by its soname."""
    shown = subprocess.run([wrapper, "-show"], capture_output=True, text=True, check=True).stdout
    words = iter(shlex.split(shown)[1:])
    words = [f"-Wl,{next(words)}" if word == "-Xlinker" else word for word in words]
    flags, skip = [], False
    for word in words:
        if not skip and "-rpath" not in word and "--enable-new-dtags" not in word:
            flags.append(word)
        skip = word.endswith(("-rpath", "-rpath-link"))
    return flags


def extension(abi, wrapper):
    flags = flags_of(wrapper)
    return Extension(
        f"pchan._core_{abi}",
        sources=sorted(glob("csrc/core/*.c") + glob("csrc/python/*.c")),
        depends=[*glob("csrc/*.h"), *glob("csrc/*/*.h")],
        define_macros=[("PCHAN_MODULE", f"_core_{abi}"), ("_GNU_SOURCE", "1")],
        extra_compile_args=["-std=c11", "-O3", "-ffp-contract=fast", "-fvisibility=hidden", "-pthread"]
        + [f for f in flags if f.startswith(("-I", "-D"))],
        extra_link_args=["-pthread"] + [f for f in flags if not f.startswith(("-I", "-D"))],
    )


class BuildExt(build_ext):
    """One extension for each ABI. Without a compiler wrapper: one sentence instead of a compiler's error."""

    def run(self):
        found = {}
        for wrapper in wrappers():
            found.setdefault(abi_of(wrapper), wrapper)
        if not found:
            sys.exit(NO_COMPILER)
        self.extensions[:] = [extension(abi, wrapper) for abi, wrapper in found.items()]
        for ext in self.extensions:
            ext._needs_stub = False
            print(f"pchan: building {ext.name} with {found[ext.name.rpartition('_')[2]]}")
        self.force = True  # the wrapper of an ABI may be another one than last time
        super().run()

    def build_extensions(self):
        """One after the other, each on all cores: the builds have the same sources, so their objects need
        folders of their own."""
        compile_files, folder = self.compiler.compile, self.build_temp

        def compile_in_parallel(sources, **options):
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                return sum(pool.map(lambda source: compile_files([source], **options), sources), [])

        self.compiler.compile = compile_in_parallel
        for ext in self.extensions:
            self.build_temp = os.path.join(folder, ext.name)
            self.build_extension(ext)


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent)
    setup(ext_modules=[Extension("pchan._core", sources=[])], cmdclass={"build_ext": BuildExt})
