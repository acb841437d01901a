"""Runs commands one after the other in namespaces of their own, and tells what each leaves behind.

/dev/shm is empty at first, no process and no System V object of others is seen, and a process that stays is found,
however it was detached. All that is left ends with the namespaces. As root only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from run_mpi import clean_environment

NAMESPACES = ("--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass
class Outcome:
    returncode: int | None  # None: it did not end within the time limit; no further command was run
    ended: float  # as time.monotonic() tells it
    output: str
    left: list[str]  # files, System V objects, processes


def isolated(commands: list[list[str]], folder: Path, shm: str = "size=1g", timeout: int = 90) -> list[Outcome]:
    """`folder` is TMPDIR for the commands; `shm` are the options of the tmpfs on /dev/shm."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes namespaces")
    try:
        subprocess.run(["unshare", *NAMESPACES, "true"], check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no namespaces can be made here: {getattr(e, 'stderr', '') or e}".strip())
    run = subprocess.run(
        ["unshare", *NAMESPACES, sys.executable, __file__],
        input=json.dumps([commands, str(folder), shm, timeout]),
        env=clean_environment(TMPDIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=len(commands) * (timeout + 30),
    )
    assert run.returncode == 0, run.stderr
    return [Outcome(**outcome) for outcome in json.loads(run.stdout)]


def processes() -> list[str]:
    """All but this one and the dead."""
    names = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = path.read_text().split(" ", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, state = rest.rsplit(")", 1)
        if int(pid) != os.getpid() and state.split()[0] not in "ZX":
            names.append(f"process {name[1:]}")
    return names


def system_v() -> list[str]:
    return [
        f"System V {kind} {' '.join(line.split())}"
        for kind in ("shm", "sem", "msg")
        for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
    ]


def left_behind(folder: str) -> list[str]:
    # mpiexec does not wait for processes it has killed, and a dead process' threads may keep memory for a moment
    end = time.monotonic() + 10
    while (processes() or system_v()) and time.monotonic() < end:
        time.sleep(0.02)
    files = [f"{place}/{name}" for place in ("/dev/shm", folder) for name in os.listdir(place)]
    return files + system_v() + processes()


def outcome(command: list[str], folder: str, timeout: int) -> Outcome:
    with tempfile.TemporaryFile("w+") as output:  # no pipe: what outlives the command would keep it open
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/")
        try:
            returncode: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            returncode = None
        ended = time.monotonic()
        left = left_behind(folder)
        output.seek(0)
        return Outcome(returncode, ended, output.read(), left)


def main() -> None:
    commands, folder, shm, timeout = json.load(sys.stdin)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=1777,{shm}", "tmpfs", "/dev/shm"], check=True)
    outcomes: list[Outcome] = []
    for command in commands:
        outcomes.append(outcome(command, folder, timeout))
        if outcomes[-1].returncode is None:
            break
    json.dump([vars(o) for o in outcomes], sys.stdout)


if __name__ == "__main__":
    main()
