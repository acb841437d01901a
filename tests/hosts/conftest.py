"""These tests start jobs over hosts made of namespaces: `pytest tests/hosts`, as root, takes about 3 minutes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run_mpi.py

from hosts import why_not  # noqa: E402


@pytest.fixture(scope="session")
def _reason():
    return why_not()


@pytest.fixture
def needs_hosts(_reason):
    if _reason:
        pytest.skip(f"no hosts can be made here: {_reason}")


@pytest.fixture
def tell(request, capsys):
    """Prints a line of what a test found, also where it passes."""

    def say(text):
        with capsys.disabled():
            print(f"\n{request.node.name}: {text}", flush=True)

    return say
