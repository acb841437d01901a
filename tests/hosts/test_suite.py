"""The channel tests over several hosts, and over MPICH's pretended nodes; sums that no division into hosts may change."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from hosts import BIN, HERE, ROOT, Hosts, environment

CHANNEL_TESTS = sorted(str(path) for path in (ROOT / "tests").glob("test_channel_*.py"))
WITH_WILDCARDS = [
    "tests/test_channel_cycle.py::test_wildcards_receive_what_comes",
    "tests/test_channel_cycle.py::test_plain_mpi_on_the_other_side",
]
INSIDE = str(HERE / "inside")
# tests that have to be skipped on several ranks, or as long as pchan has no connect
EXPECTED = re.compile(
    r"^starts MPI jobs of its own|^Test requires \d+ MPI|^one rank$|^Channel has no connect yet$"
)


def pytest_command(report, *paths):
    # -c: not the pytest.ini of this folder
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), f"--junitxml={report}"]
    return [str(BIN / "pytest"), *options, *paths]


def check(report, returncode, output, least):
    """Every test passed, at least so many, and none was skipped for a reason unheard of. Tells the counts."""
    assert returncode == 0, output
    cases = list(ET.parse(report).getroot().iter("testcase"))
    skips = [
        (case.get("name"), case.find("skipped").get("message"))
        for case in cases
        if case.find("skipped") is not None
    ]
    bad = [
        case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    assert not bad, f"failed: {bad}\n{output}"
    assert not [skip for skip in skips if not EXPECTED.search(skip[1])]
    passed = len(cases) - len(skips)
    assert passed >= least, output
    return f"{passed} passed, {len(skips)} skipped"


@pytest.fixture(scope="session")
def library():
    """What mpi4py's MPI calls itself."""
    code = "from mpi4py import MPI; print(MPI.Get_library_version())"
    return subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True).stdout


def any_source_works(hosts, ranks, env):
    return (
        hosts.run(ranks, sys.executable, str(HERE / "inside" / "any_source.py"), timeout=20, **env).returncode == 0
    )


@pytest.mark.parametrize("netmod", ["ucx", "ofi"])
@pytest.mark.parametrize("ranks", [(2, 2), (2, 1, 1)], ids=str)
def test_channel_tests_over_hosts(ranks, netmod, library, needs_hosts, tmp_path, tell):
    if not re.search(rf"ch4:.*\b{netmod}\b", library):
        pytest.skip(f"this MPICH has no {netmod}")
    env = {"MPIR_CVAR_CH4_NETMOD": netmod}
    report, left_out = tmp_path / "report.xml", []
    with Hosts(len(ranks)) as hosts:
        if not any_source_works(hosts, ranks, env):
            left_out = WITH_WILDCARDS
    with Hosts(len(ranks)) as hosts:
        options = [f"--deselect={test}" for test in left_out]
        job = hosts.run(ranks, *pytest_command(report, *options, *CHANNEL_TESTS, INSIDE), timeout=110, **env)
    counts = check(report, job.returncode, job.output, least=80)
    tell(counts + (f", {len(left_out)} left out: MPI's own ANY_SOURCE fails here" if left_out else ""))


@pytest.mark.parametrize("how", [{"MPIR_CVAR_NUM_CLIQUES": "2"}, {"MPIR_CVAR_ODD_EVEN_CLIQUES": "1"}], ids=str)
def test_channel_tests_on_pretended_nodes(how, tmp_path, tell):
    report = tmp_path / "report.xml"
    command = ["mpiexec", "-n", "4", *pytest_command(report, *CHANNEL_TESTS)]
    env = environment(MPIEXEC_TIMEOUT="120", **how)
    size = subprocess.run(
        [
            "mpiexec",
            "-n",
            "4",
            sys.executable,
            "-c",
            "from mpi4py import MPI\nc = MPI.COMM_WORLD\nprint(c.Split_type(MPI.COMM_TYPE_SHARED).size)",
        ],
        env=env,
        capture_output=True,
        text=True,
        timeout=130,
    )
    assert size.stdout.split() == ["2"] * 4, f"{how} makes no nodes of two ranks: {size.stdout}{size.stderr}"
    run = subprocess.run(
        command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=130
    )
    tell(check(report, run.returncode, run.stdout, least=70))


def digests(job):
    assert job.returncode == 0, job.output
    found = dict(re.findall(r"^digest (\w+) (\w+)$", job.output, re.M))
    return found, set(re.findall(r"^host (\w+)$", job.output, re.M))


def test_sums_have_the_same_bits_over_hosts(needs_hosts, tell):
    """QReduceScatter in every strategy, and gram: one rank, one host, two hosts, three uneven ones."""
    with Hosts(3) as hosts:
        command = [sys.executable, str(HERE / "inside" / "digest.py")]
        path = {"PYTHONPATH": str(ROOT / "tests")}
        want, _ = digests(hosts.run((1,), *command, **path))
        assert {"residues", "gather", "gram"} <= set(want) and len({*want.values()}) == 2
        for ranks in ((3,), (2, 2), (2, 1, 1), (1, 3)):
            found, names = digests(hosts.run(ranks, *command, **path))
            assert len(names) == len(ranks) and found == want, ranks
        tell(f"{', '.join(want)} on 5 arrangements")
