"""The README's code runs as printed, and the maps name every file."""

import re
import sys
from pathlib import Path

import pytest
from run_mpi import run_mpi

pytestmark = pytest.mark.launcher
ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number, n):
    run = run_mpi(n, [sys.executable, "-c", BLOCKS[number]])
    assert run.returncode == 0 and run.stderr == "", run.stderr


def test_there_are_two_examples_of_the_promised_length():
    assert [len(block.strip().splitlines()) for block in BLOCKS] == [15, 9]


def test_the_map_names_every_file():
    text = (ROOT / "csrc" / "README.md").read_text()
    for source in [*(ROOT / "csrc" / "core").glob("*.c"), *(ROOT / "csrc" / "python").glob("*.c")]:
        assert f"`{source.name}`" in text, source.name
    for name in re.findall(r"`(\w+\.[ch])`", text):
        assert list((ROOT / "csrc").rglob(name)), name


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text())):
        assert re.search(rf"^{target}:", makefile, re.M), target
