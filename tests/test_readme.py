"""The README's code runs as printed, and the maps name every file."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from run_mpi import clean_environment, run_mpi

from pchan import _select

pytestmark = pytest.mark.launcher
ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)
PICTURES = {"channel": "channel_2_ranks.json", "qreduce": "qreduce_4_ranks.json"}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number, n):
    run = run_mpi(n, [sys.executable, "-c", BLOCKS[number]])
    assert run.returncode == 0 and run.stderr == "", run.stderr


def test_there_are_two_examples_of_the_promised_length():
    assert [len(block.strip().splitlines()) for block in BLOCKS] == [13, 9]


def test_the_map_names_every_file():
    text = (ROOT / "csrc" / "README.md").read_text()
    sources = [*(ROOT / "csrc" / "core").glob("*.[ch]"), *(ROOT / "csrc" / "python").glob("*.[ch]")]
    assert len(sources) > 60
    for source in [*sources, *(ROOT / "csrc" / "tests").glob("testing*.h"), ROOT / "csrc" / "pchan.h"]:
        assert f"`{source.name}`" in text, source.name
    for name in re.findall(r"`(\w+\.[ch])`", text):
        assert list((ROOT / "csrc").rglob(name)), name


def test_every_make_target_has_a_sentence():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)", makefile, re.M)[1].split()
    assert len(targets) > 8
    run = subprocess.run(["make", "-s", "-C", str(ROOT), "help"], capture_output=True, text=True, timeout=60)
    for target in targets:
        assert re.search(rf"^make {target} +\w.*\w", run.stdout, re.M), target


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake (\w+)", README)):
        assert re.search(rf"^{target}:", makefile, re.M), target


def is_current(picture, source):
    """An SVG names the file of results it was drawn from, and its digest."""
    digest = hashlib.sha256((ROOT / "benchmarks" / "results" / source).read_bytes()).hexdigest()
    return f"{source} {digest}" in picture.read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_small_and_of_the_results(name):
    picture = ROOT / "docs" / "images" / f"{name}.svg"
    assert picture.stat().st_size < 100_000 and f"(docs/images/{name}.svg)" in README
    assert is_current(picture, PICTURES[name]), "python benchmarks/headline.py draws it anew"


def test_pictures_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(ROOT / "benchmarks" / "headline.py"), "--out", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, env=clean_environment())
    assert run.returncode == 0 and run.stderr == "", run.stderr
    for name, source in PICTURES.items():
        text = (tmp_path / f"{name}.svg").read_text()
        assert is_current(tmp_path / f"{name}.svg", source) and ("(s)" in text or "(µs)" in text)


def test_figures_are_those_of_the_performance_page():
    """Which a test compares with the results."""
    page = (ROOT / "docs" / "performance.md").read_text()
    for what, figure in [("the same, messages up to 512 B", "15.0"), ("exchange by pairs of nodes.*", "11.6")]:
        assert re.search(rf"^\| {what} \| {figure} \|", page, re.M)
        assert f"{figure.removesuffix('.0')} times" in README


def test_quoted_errors_are_the_true_ones():
    messages = [
        (ROOT / "setup.py").read_text(),
        (ROOT / "csrc" / "python" / "module.c").read_text(),
        (ROOT / "pchan" / "_select.py").read_text(),
        _select._mismatch("abi", ["mpich"]),
        _select._mismatch("abi", ["mpich"], "pchan's build for it does not load (why)"),
    ]
    text = README.partition("### When it fails")[2]
    quoted = [a or b for a, b in re.findall(r"``(.+?)``|(?<!`)`([^`]+)`", text)]
    quoted = [q for q in quoted if "pchan" in q and "PCHAN" not in q]
    assert len(quoted) == 5
    for quote in quoted:
        pattern = ".*".join(re.escape(part) for part in quote.split("…"))
        assert any(re.search(pattern, m) for m in messages), quote


def test_contributing_names_what_exists():
    """Files, and functions and tables of C and Python that its steps name."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a strategy")[2]
    files = [f for folder in ("csrc", "pchan", "tests", "benchmarks") for f in (ROOT / folder).rglob("*.[chp]*")]
    source = "".join(f.read_text() for f in files if f.suffix in (".c", ".h", ".py"))
    for name in re.findall(r"`([\w./]+\.(?:c|h|py|md|pml))`", text):
        assert any((ROOT / start / name).exists() for start in ("", "csrc/core", "tests", "tests/hosts")), name
    names = set(re.findall(r"`((?:pch|PCH|test|forced|plan|lay|strategy)\w+|settle|STRATEGIES|TRANSPORTS)`", text))
    assert len(names) > 15
    for name in names:
        assert re.search(rf"\b{name}\b", source), name
