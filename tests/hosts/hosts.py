"""Hosts on one machine: namespaces joined by a network, over which Hydra's mpiexec runs jobs.

Each host has its own network, UTS, IPC, mount and pid namespace and its own /dev/shm; files are shared, as on a
cluster with a network file system. The head, where mpiexec runs, is one more, and the parent of the others:

    head (bridge eth0, 10.77.0.254) ── port1 ── eth0 of h1 (10.77.0.1)
                                    └─ port2 ── eth0 of h2 (10.77.0.2) ...

Namespaces here have no names, so parallel runs do not collide. All die with the head's first process, which ends when
its standard input does: even where this process is killed, nothing is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from run_mpi import clean_environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = Path(sys.executable).parent
NAMESPACES = ("--net", "--uts", "--ipc", "--mount", "--pid")

# The first process of a host, whose name is $1. It tells its process id as the parent's /proc has it.
FIRST = """
read -r pid rest </proc/self/stat
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
hostname "$1"
ip link set lo up
echo "$pid"
exec cat
"""
NAMES = "cat >/dev/shm/hosts; mount --bind /dev/shm/hosts /etc/hosts"
PROCESSES = "for d in /proc/[0-9]*; do [ $d = /proc/$$ ] || grep -hs -e ^Name: -e ^State: $d/status; done; true"


def environment(**extra: str) -> dict[str, str]:
    """For a job: nothing of the job this process may belong to, and the programs of this Python first."""
    return clean_environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", **extra)


def why_not(delay_ms: float = 0, rate: str | None = None) -> str | None:
    """Why there can be no such hosts here, in a few words, or None."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("ip", "tc", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)} (of iproute2, util-linux)"
    version = subprocess.run(["mpiexec", "--version"], env=environment(), capture_output=True, text=True).stdout
    if "HYDRA" not in version:
        return "needs MPICH's mpiexec (Hydra)"
    try:
        with Hosts(1, delay_ms, rate):
            return None
    except (subprocess.CalledProcessError, OSError) as e:
        return f"the kernel refuses: {getattr(e, 'stderr', None) or e}".strip()


class Host:
    """A host made from within `parent` (None: from where this process runs)."""

    def __init__(self, name: str, parent: Host | None = None):
        self.name = name
        path = parent.path if parent else []
        self._first = subprocess.Popen(
            [*path, "unshare", *NAMESPACES, "--fork", "--kill-child", "sh", "-ec", FIRST, "sh", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        answer = self._first.stdout.readline()
        if not answer:
            raise OSError(self._first.communicate()[1].strip())
        self.pid = int(answer)
        self.path = [*path, "nsenter", f"--target={self.pid}", *NAMESPACES, "--"]  # before a command: runs it here

    def run(self, *command: str, text: str = "") -> str:
        """Runs a short command; its standard output."""
        return subprocess.run(
            [*self.path, *command], input=text, check=True, capture_output=True, text=True, timeout=30
        ).stdout

    def ip(self, *lines: str) -> None:
        self.run("ip", "-batch", "-", text="\n".join(lines))

    def shared_memory(self) -> list[str]:
        """What this host has in /dev/shm, and its System V segments."""
        segments = self.run("cat", "/proc/sysvipc/shm").splitlines()[1:]
        return self.run("ls", "-A", "/dev/shm").split() + [f"SysV key {line.split()[0]}" for line in segments]

    def processes(self) -> list[str]:
        """Names of what runs on this host, apart from its first process."""
        words = [line.split()[1] for line in self.run("sh", "-c", PROCESSES).splitlines()]
        return [name for name, state in zip(words[::2], words[1::2], strict=True) if state not in "ZX"][1:]

    def end(self) -> None:
        self._first.kill()
        self._first.communicate()


class Hosts:
    """Hosts h1 ... hn and a head. A context manager.

    delay_ms: one way, from host to host. rate: of each host's link, either way, as tc writes it: "100mbit".
    """

    def __init__(self, n: int, delay_ms: float = 0, rate: str | None = None):
        self.n, self.delay_ms, self.rate = n, delay_ms, rate

    def __enter__(self) -> Hosts:
        self.head = Host("head")
        self._hosts: list[Host] = []
        self._wire: subprocess.Popen[str] | None = None
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, i: int) -> Host:
        """Host 1 ... n; 0 is the head."""
        return self._hosts[i - 1] if i else self.head

    def close(self) -> None:
        """Ends all hosts and whatever runs there."""
        for host in [*self._hosts, self.head]:
            host.end()
        if self._wire:
            self._wire.communicate()

    def _build(self) -> None:
        numbers = range(1, self.n + 1)
        addresses = ["127.0.0.1 localhost", "10.77.0.254 head", *(f"10.77.0.{i} h{i}" for i in numbers)]
        self.head.run("sh", "-ec", NAMES, text="\n".join([*addresses, ""]))
        self.head.ip("link add eth0 type bridge", "link set eth0 up", "addr add 10.77.0.254/24 dev eth0")
        self._hosts = [Host(f"h{i}", self.head) for i in numbers]
        self._lay_cables()
        for i, host in enumerate(self._hosts, 1):
            self.head.run("sh", "-c", f"echo {host.pid} >/dev/shm/h{i}.pid")  # for launch.sh
            self.head.ip(f"link set port{i} master eth0 up")
            host.ip(f"addr add 10.77.0.{i}/24 dev eth0", "link set eth0 up")
            if self.rate:
                shape = f"root tbf rate {self.rate} burst 64kb latency 100ms"
                self.head.run("tc", *f"qdisc add dev port{i} {shape}".split())
                host.run("tc", *f"qdisc add dev eth0 {shape}".split())

    def _lay_cables(self) -> None:
        """Interface eth0 of every host, and its other end, port<i> of the head."""
        pids = [host.pid for host in self._hosts]
        if not self.delay_ms:
            self.head.ip(
                *(f"link add port{i} type veth peer name eth0 netns {pid}" for i, pid in enumerate(pids, 1))
            )
            return
        links = [f"port{i}:far{i}" for i in range(1, self.n + 1)]
        self._wire = subprocess.Popen(  # a message from host to host passes two of its links
            [*self.head.path, sys.executable, str(HERE / "wire.py"), str(self.delay_ms / 2), *links],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._wire.stdout.readline() != "ready\n":
            raise OSError("no TAP interfaces (/dev/net/tun)")
        self.head.ip(*(f"link set far{i} netns {pid} name eth0" for i, pid in enumerate(pids, 1)))

    def link(self, i: int, state: str) -> None:
        """Pulls the cable of host i ("down"), or plugs it in again ("up")."""
        self.head.ip(f"link set port{i} {state}")

    def start(self, ranks: tuple[int, ...], *command: str, timeout: float = 60, **env: str) -> Job:
        """Starts a job of ranks[0] ranks on h1, ranks[1] on h2, ...; it ends after `timeout` at the latest."""
        places = ",".join(f"h{i}:{n}" for i, n in enumerate(ranks, 1))
        launcher = ["-launcher", "ssh", "-launcher-exec", str(HERE / "launch.sh"), "-iface", "eth0"]
        mpiexec = ["mpiexec", *launcher, "-hosts", places, "-n", str(sum(ranks)), "-wdir", str(ROOT), *command]
        return Job(self, mpiexec, environment(MPIEXEC_TIMEOUT=str(int(timeout)), **env), timeout)

    def run(self, ranks: tuple[int, ...], *command: str, timeout: float = 60, **env: str) -> Job:
        """A job from its start to its end."""
        job = self.start(ranks, *command, timeout=timeout, **env)
        job.wait()
        return job


class Job:
    """An mpiexec on the head. After `wait`: returncode, and output (of standard output and error)."""

    def __init__(self, hosts: Hosts, command: list[str], env: dict[str, str], timeout: float):
        self._hosts, self._timeout = hosts, timeout
        self._process = subprocess.Popen(
            [*hosts.head.path, *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        """Waits for the end. A job whose own time limit did not end it is killed, with the hosts."""
        try:
            self.output, _ = self._process.communicate(timeout=self._timeout + 10)
        except subprocess.TimeoutExpired:
            self._hosts.close()
            self.output = self._process.communicate()[0] + "\nkilled: it did not end by itself"
        self.returncode = self._process.returncode
