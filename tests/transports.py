"""The ways a message can go, for tests that run over all of them."""

from __future__ import annotations

import pytest

# name: environment; "off" is a channel that is not connected
TRANSPORTS: dict[str, dict[str, str]] = {
    "off": {},
    "auto": {},
    "mpi": {"PCHAN_TRANSPORT": "mpi"},
    "shm": {"PCHAN_TRANSPORT": "shm"},
    "cma": {"PCHAN_TRANSPORT": "cma"},
    "bundle": {"PCHAN_TRANSPORT": "bundle"},
    "no cma": {"PCHAN_CMA": "0", "PCHAN_SHM_BYTES": "64"},
    "one copy": {"PCHAN_SHM_BYTES": "0"},
}


@pytest.fixture(params=TRANSPORTS)
def transport(request, monkeypatch):
    """Sets the environment in which channels connect, and is a function to call on each channel once registered."""
    for name, value in TRANSPORTS[request.param].items():
        monkeypatch.setenv(name, value)
    connect = (lambda ch: None) if request.param == "off" else (lambda ch: ch.connect())
    connect.name = request.param
    return connect
