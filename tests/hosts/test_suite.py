"""The channel tests over several hosts, and over MPICH's pretended nodes; sums that no division into hosts may change."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from hosts import BIN, HERE, ROOT, Hosts, environment

# not those of memory and of messages above 2 GiB, which take long and know nothing of hosts
NAMES = ("test_channel_[bce]*.py", "test_connect*.py", "test_empty.py")
CHANNEL_TESTS = sorted(str(path) for name in NAMES for path in (ROOT / "tests").glob(name))
# MPICH 5.0.2 over UCX: receives from ANY_SOURCE between nodes hang, see inside/any_source.py
FAULTY = "5.0.2"
INSIDE = str(HERE / "inside")
# tests that have to be skipped on several ranks, or on several nodes
EXPECTED = re.compile(r"^starts MPI jobs of its own|^Test requires \d+ MPI|^one rank$|^ranks on several nodes: ")


def pytest_command(report, *paths):
    # -c: not the pytest.ini of this folder
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), f"--junitxml={report}"]
    return [str(BIN / "pytest"), *options, *paths]


def check(report, returncode, output, least):
    """Every test passed, at least so many, and none was skipped for a reason unheard of. Tells the counts."""
    assert returncode == 0, output
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert not [case.get("name") for case in cases if {"failure", "error"} & {part.tag for part in case}], output
    skips = {case.get("name"): part.get("message") for case in cases for part in case.iter("skipped")}
    assert not {name: why for name, why in skips.items() if not EXPECTED.search(why)}
    assert len(cases) - len(skips) >= least, output
    return f"{len(cases) - len(skips)} passed, {len(skips)} skipped"


def on_one_host(n, *command, **env):
    return subprocess.run(
        ["mpiexec", "-n", str(n), *command],
        env=environment(MPIEXEC_TIMEOUT="300", **env),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=320,
    )


@pytest.fixture(scope="session")
def library():
    """MPICH's version, and its network modules, the default one first."""
    text = on_one_host(1, sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())").stdout
    found = re.search(r"MPICH Version:\s*(\S+).*MPICH Device:\s*ch4:([a-z, ]+)", text, re.S)
    if not found:
        pytest.skip(f"written for MPICH with ch4, not for {text[:40]}")
    return found[1], re.split("[, ]+", found[2].strip())


def skip_without(netmod, library):
    if netmod not in library[1]:
        pytest.skip(f"this MPICH has no {netmod}")


def suite(report, netmod, library, *more):
    """The command that runs the channel tests, and what to say of those left out."""
    faulty = netmod == "ucx" and library[0] == FAULTY
    command = pytest_command(report, *(["-m", "not any_source"] if faulty else []), *CHANNEL_TESTS, *more)
    return command, ", those with ANY_SOURCE left out: MPICH hangs" if faulty else ""


@pytest.mark.parametrize("ranks, netmod", [((2, 2), "ucx"), ((2, 1, 1), "ofi")], ids=["2+2 ucx", "2+1+1 ofi"])
def test_channel_tests_over_hosts(ranks, netmod, library, needs_hosts, tmp_path, tell):
    skip_without(netmod, library)
    command, note = suite(tmp_path / "report.xml", netmod, library, INSIDE)
    with Hosts(len(ranks)) as hosts:
        job = hosts.run(ranks, *command, timeout=300, MPIR_CVAR_CH4_NETMOD=netmod)
    tell(check(tmp_path / "report.xml", job.returncode, job.output, least=150) + note)


@pytest.mark.parametrize("netmod", ["ucx", "ofi"])
def test_any_source_in_plain_mpi(netmod, library, needs_hosts):
    """Fails once MPICH works where it is said to be faulty, and where it is faulty elsewhere."""
    skip_without(netmod, library)
    with Hosts(2) as hosts:
        job = hosts.run(
            (2, 2), sys.executable, str(HERE / "inside" / "any_source.py"), timeout=20, MPIR_CVAR_CH4_NETMOD=netmod
        )
    assert (job.returncode != 0) == (netmod == "ucx" and library[0] == FAULTY), job.output


@pytest.mark.parametrize(
    "variable, value, netmod", [("NUM_CLIQUES", "2", "ucx"), ("ODD_EVEN_CLIQUES", "1", "ofi")]
)
def test_channel_tests_on_pretended_nodes(variable, value, netmod, library, tmp_path, tell):
    skip_without(netmod, library)
    env = {f"MPIR_CVAR_{variable}": value, "MPIR_CVAR_CH4_NETMOD": netmod}
    sizes = "MPI.COMM_WORLD.gather(MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).size)"
    job = on_one_host(4, sys.executable, "-c", f"from mpi4py import MPI; print({sizes} or '', end='')", **env)
    assert job.stdout == "[2, 2, 2, 2]"
    command, note = suite(tmp_path / "report.xml", netmod, library)
    job = on_one_host(4, *command, **env)
    tell(check(tmp_path / "report.xml", job.returncode, job.stdout, least=150) + note)


def digests(hosts, ranks, netmod):
    """The fingerprints that inside/digest.py prints on so many ranks per host."""
    env = {"PYTHONPATH": str(ROOT / "tests"), "MPIR_CVAR_CH4_NETMOD": netmod}  # for oracle.py
    job = hosts.run(ranks, sys.executable, str(HERE / "inside" / "digest.py"), **env)
    assert job.returncode == 0 and f"hosts {len(ranks)}\n" in job.output, job.output
    return dict(re.findall(r"^digest (\w+) (\w+)$", job.output, re.M))


def test_sums_have_the_same_bits_over_hosts(library, needs_hosts, tell):
    """QReduceScatter in every strategy, and gram: one rank, one host, two hosts, three uneven ones."""
    first, last = library[1][0], library[1][-1]
    with Hosts(3) as hosts:
        want = digests(hosts, (1,), first)
        assert {"residues", "gather", "gram"} <= set(want)
        assert len({value for name, value in want.items() if name != "gram"}) == 1
        for ranks, netmod in (((3,), first), ((2, 2), first), ((2, 2), last), ((2, 1, 1), first), ((1, 3), last)):
            assert digests(hosts, ranks, netmod) == want, (ranks, netmod)
    tell(f"{', '.join(want)} on 6 arrangements")
