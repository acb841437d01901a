"""The pages of docs/ and the README: Python blocks run, C blocks compile, shell blocks name what exists."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from document_blocks import blocks, commands, program
from run_mpi import clean_environment, run_mpi
from sdp_folder import write_sdp_folder

import pchan

pytestmark = pytest.mark.launcher
ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH = {
    language: [p for p in PAGES if any(b.language == language for b in blocks(p))] for language in ("python", "c")
}
LANGUAGES = {"python", "c", "sh", "shell", ""}
MPICC = os.environ.get("MPICC") or shutil.which("mpicc") or str(Path(sys.executable).with_name("mpicc"))


def name(page):
    return page.stem


def test_every_block_is_of_a_kind_that_is_checked():
    assert len(PAGES) > 12
    for page in PAGES:
        for block in blocks(page):
            assert block.language in LANGUAGES or block.language.startswith("{"), f"{page}:{block.line}"
    assert len(WITH["python"]) > 6 and WITH["c"]


@pytest.mark.parametrize("page", WITH["python"], ids=name)
def test_python_blocks_run(page, tmp_path):
    """A page is one program, in a folder with an SDPB folder `sdp` in it. Three ranks where more than two matter."""
    n = 3 if page.stem in ("q", "README") else 2
    write_sdp_folder(tmp_path / "sdp")
    source = tmp_path / f"{page.stem}.py"
    source.write_text(program(page))
    run = run_mpi(n, [sys.executable, str(source)], cwd=str(tmp_path))
    assert run.returncode == 0 and run.stderr == "", run.stderr


@pytest.mark.parametrize("page", WITH["c"], ids=name)
def test_c_blocks_compile(page):
    for block in blocks(page):
        if block.language == "c":
            flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(ROOT / "csrc")]
            command = [MPICC, *flags, "-xc", "-"]
            done = subprocess.run(
                command, input=block.text, capture_output=True, text=True, env=clean_environment()
            )
            assert done.returncode == 0, f"{page}:{block.line}: {done.stderr}"


class Shell:
    """What a command may name. Each kind of command has a method; an unknown one is a KeyError."""

    def __init__(self):
        sources = [p for folder in ("pchan", "csrc", "benchmarks") for p in (ROOT / folder).rglob("*.[chp]*")]
        self.sources = (
            "".join(p.read_text() for p in sources if p.suffix in (".py", ".c", ".h"))
            + (ROOT / "setup.py").read_text()
        )
        self.helps = {}

    def check(self, words):
        while words and (variable := re.fullmatch(r"(\w+)=.*", words[0])):
            assert re.search(rf"\b{variable[1]}\b", self.sources), variable[1]
            words = words[1:]
        kinds = {"make": self.make, "pip": self.pip, "python": self.python, "mpicc": self.compiler}
        kinds |= {"mpiexec": self.mpiexec, "./ring": lambda arguments: None}
        kinds[words[0]](words[1:])

    def mpiexec(self, arguments):
        assert arguments[0] == "-n" and int(arguments[1]) > 0
        self.check(arguments[2:])

    def make(self, arguments):
        folder = ROOT / arguments[1] if arguments[:1] == ["-C"] else ROOT
        makefile = (folder / "Makefile").read_text()
        for target in arguments[2:] if folder != ROOT else arguments:
            assert re.search(rf"^{target}:", makefile, re.M), target

    def pip(self, arguments):
        pyproject = (ROOT / "pyproject.toml").read_text()
        assert arguments[0] == "install"
        for word in arguments[1:]:
            known = word == "." or word in ("--force-reinstall", "--no-deps") or f'"{word}' in pyproject
            assert known, word

    def compiler(self, arguments):
        for word in arguments:
            path = word.removeprefix("-I")
            assert "/" not in path or path == "csrc/build/libpchan.a" or (ROOT / path).exists(), word

    def python(self, arguments):
        if arguments[:2] == ["-m", "pchan"]:
            depth = 4 if arguments[2] == "bench" else 3
            self.options(arguments[:depth], arguments[depth:])
        elif arguments[0] == "-m":
            module = arguments[1].removeprefix("pchan.examples.")
            assert (ROOT / "examples" / f"{module}.py").exists(), arguments
        else:
            assert (ROOT / arguments[0]).exists(), arguments
            self.options([str(ROOT / arguments[0])], arguments[1:])

    def options(self, command, arguments):
        wanted = [word for word in arguments if word.startswith("--")]
        key = tuple(command)
        if key not in self.helps:
            run = run_mpi(1, [sys.executable, *command, "--help"])
            assert run.returncode == 0, run.stderr
            self.helps[key] = run.stdout
        for word in wanted:
            assert re.search(rf"{word}\b", self.helps[key]), f"{command}: {word}"


def test_shell_blocks_name_what_exists():
    shell, n_commands = Shell(), 0
    for page in [*PAGES, ROOT / "benchmarks" / "README.md"]:
        for block in blocks(page):
            if block.language in ("sh", "shell"):
                for words in commands(block.text):
                    n_commands += 1
                    try:
                        shell.check(words)
                    except (AssertionError, KeyError, IndexError, ValueError, OSError) as e:
                        raise AssertionError(f"{page}:{block.line}: {' '.join(words)}: {e!r}") from e
    assert n_commands > 25


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text()
    for public in pchan.__all__:
        assert re.search(rf"^\.\. auto\w+:: {public}$", text, re.M), public


def test_the_c_reference_has_every_section():
    sections = re.findall(r"^/\* -+ ([a-z -]+?) -+ \*/$", (ROOT / "csrc" / "pchan.h").read_text(), re.M)
    assert len(sections) > 10
    text = (ROOT / "docs" / "c_api.md").read_text()
    shown = re.findall(r'^:start-after: "- (.*) -"$', text, re.M)
    assert shown == [s for s in sections if s != "version"] or shown == sections


def test_the_header_lists_all_strategies():
    text = (ROOT / "csrc" / "pchan.h").read_text()
    for strategy in pchan.qreduce.STRATEGIES:
        assert re.search(rf"^ \*   {strategy} +\S", text, re.M), strategy


def table(page, heading):
    """Rows of the first table after a heading."""
    rows = page.read_text().partition(heading)[2].partition("| --- |")[2].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[: rows.index("")]]


def test_figures_of_the_page_are_those_of_the_results():
    def results(file):
        return json.loads((ROOT / "benchmarks" / "results" / file).read_text())

    def ratio(file, over, under, largest=2**30):
        cells = [c for c in results(file)["cells"] if c["bytes"] <= largest]
        assert len(cells) == (45 if largest == 2**30 else 20)
        return float(np.exp(np.mean([np.log(c["us"][over] / c["us"][under]) for c in cells])))

    def flint(file):
        case = results(file)["baselines"][0]
        assert (case["n"], case["k"], case["bits"]) == (200, 400, 1024)
        return case["flint_s"] / case["pchan_s"]

    def by_pairs(file):
        case = next(c for c in results(file)["cases"] if c["n"] == 1000)
        assert case["bits"] == 1024
        return case["results"]["sdpb pairwise"]["cpu_s"] / case["results"]["residues"]["cpu_s"]

    channel = "channel_2_ranks.json"
    right = [
        ratio(channel, "raw_waitall", "pchan"),
        ratio(channel, "raw_waitall", "pchan_connected"),
        ratio(channel, "raw_waitall", "pchan_connected", 512),
        ratio(channel, "mpi4py_persistent", "pchan", 512),
        flint("gram_1_rank.json"),
        flint("gram_2_ranks.json"),
        by_pairs("qreduce_4_ranks.json"),
    ]
    rows = table(ROOT / "docs" / "performance.md", "## Some figures")
    assert [row[1] for row in rows] == [f"{x:#.3g}" if x >= 10 else f"{x:.2f}" for x in right]
