"""The benchmarks run, in their shortest form, and write what they measured."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from run_mpi import clean_environment, run_mpi

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "benchmarks" / "README.md").read_text()
pytestmark = pytest.mark.launcher


@pytest.mark.parametrize("n", [2, 3])
def test_bench_channel(tmp_path, n):
    report = tmp_path / "report.json"
    script = [sys.executable, str(ROOT / "benchmarks" / "bench_channel.py"), "--smoke", "--json", str(report)]
    run = run_mpi(n, [*script, "--bytes", "1,4096", "--pairs", "1,4"])
    assert run.returncode == 0 and "geometric mean" in run.stdout, run.stdout + run.stderr
    figures = json.loads(report.read_text())
    assert [(c["bytes"], c["pairs"]) for c in figures["cells"]] == [(1, 1), (1, 4), (4096, 1), (4096, 4)]
    systems = {"raw_waitall", "temporaries", "mpi4py_persistent", "mpi4py_nonblocking", "pchan", "pchan_core"}
    for cell in figures["cells"]:
        assert systems <= set(cell["us"]) and all(us > 0 for us in cell["us"].values())
    assert figures["machine"]["ranks"] == n and figures["goals"]
    assert str(ROOT) not in report.read_text() and str(Path.home()) + "/" not in report.read_text()
    assert sum(line.startswith("geometric mean") for line in run.stdout.splitlines()) == 1


@pytest.mark.parametrize("n", [2, 3])
def test_bench_qreduce(tmp_path, n):
    """Every competitor checks its own result."""
    report = tmp_path / "report.json"
    script = [sys.executable, str(ROOT / "benchmarks" / "bench_qreduce.py"), "--n", "40", "--bits", "128"]
    run = run_mpi(n, [*script, "--repetitions", "1", "--json", str(report)])
    assert run.returncode == 0 and f"{n} nodes of 1 rank" in run.stdout, run.stdout + run.stderr
    (case,) = json.loads(report.read_text())["cases"]
    names = {"residues", "restored", "ring", "ring_scan", "mpi"}
    assert names <= set(case["results"])
    for figures in case["results"].values():
        assert figures["cpu_s"] > 0 and figures["wall_s"] > 0 and figures["bytes_held"] > 0


@pytest.mark.parametrize("n, pattern", [(2, "pingpong"), (3, "pingpong"), (1, "halo"), (3, "halo"), (4, "halo")])
def test_other_patterns(tmp_path, n, pattern):
    """Each system checks that it moved everything."""
    report = tmp_path / "report.json"
    options = ["--pattern", pattern, "--bytes", "1,5", "--pairs", "2", "--smoke", "--json", str(report)]
    run = run_mpi(n, [sys.executable, str(ROOT / "benchmarks" / "bench_channel.py"), *options])
    assert run.returncode == 0, run.stdout + run.stderr
    figures = json.loads(report.read_text())
    assert figures["pattern"] == pattern and len(figures["cells"]) == 2 and not figures["goals"]


COMMANDS = {
    "channel": ["--smoke", "--bytes", "1,64", "--pairs", "1,2"],
    "qreduce": ["--n", "10,20", "--bits", "64", "--repetitions", "1"],
    "gram": ["--quick"],
}


@pytest.fixture(scope="module", params=COMMANDS)
def result(request, tmp_path_factory):
    """What `python -m pchan bench` writes: report, picture, output."""
    folder = tmp_path_factory.mktemp("bench")
    files = [str(folder / "report.json"), str(folder / "picture.png")]
    name = request.param
    options = [*COMMANDS[name], "--json", files[0], "--plot", files[1]]
    run = run_mpi(2, [sys.executable, "-m", "pchan", "bench", name, *options])
    assert run.returncode == 0, run.stdout + run.stderr
    return name, folder, run.stdout


def test_bench_command_says_what_it_ran_on(result):
    name, folder, output = result
    report = json.loads((folder / "report.json").read_text())
    assert report["benchmark"] == name and report["arguments"] == COMMANDS[name]
    assert {"ranks", "cores", "pinned", "oversubscribed", "kernel", "mpi", "commit"} <= set(report["machine"])
    assert {"load_before", "others_cores", "stolen_cores"} == set(report["noise"])
    assert "2 ranks on" in output and report["machine"]["mpi"] in output


def test_plots_are_pictures(result):
    _, folder, _ = result
    picture = (folder / "picture.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def compare(folder, change, *options):
    """compare.py on the report and on a changed one."""
    old = folder / "report.json"
    new = folder / "new.json"
    report = json.loads(old.read_text())
    change(report)
    new.write_text(json.dumps(report))
    command = [sys.executable, str(ROOT / "benchmarks" / "compare.py"), str(old), str(new), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=clean_environment())


def slower(factor):
    def change(report):
        for cell in report.get("cells", []):
            cell["us"] = {k: v * factor if k.startswith("pchan") else v for k, v in cell["us"].items()}
        for case in report.get("cases", []):
            case["results"]["residues"]["cpu_s"] *= factor
        for case in report.get("baselines", []):
            case["pchan_s"] *= factor

    return change


def test_compare_finds_what_is_slower(result):
    _, folder, _ = result
    same = compare(folder, slower(1.0))
    assert same.returncode == 0 and " 0 worse" in same.stdout, same.stdout + same.stderr
    better = compare(folder, slower(0.5))
    assert better.returncode == 0 and "better" in better.stdout
    worse = compare(folder, slower(1.5), "--no-repeat")
    assert worse.returncode == 1 and "WORSE" in worse.stdout and " 0 worse" not in worse.stdout


def test_compare_measures_again_before_it_alarms(result):
    _, folder, _ = result
    once = compare(folder, slower(1e6))  # nothing is a million times slower
    assert "twice more" in once.stdout and once.returncode in (0, 1), once.stdout + once.stderr
    changes = [
        float(line.split()[-2 if line.endswith(("WORSE", "better")) else -1])
        for line in once.stdout.splitlines()
        if " / " in line
    ]
    assert changes and max(changes) < 1e5, once.stdout


@pytest.mark.parametrize(
    "change", [lambda r: r.update(benchmark="other"), lambda r: r["machine"].update(ranks=99), lambda r: r.clear()]
)
def test_compare_refuses_what_differs(result, change):
    _, folder, _ = result
    run = compare(folder, change)
    assert run.returncode == 2 and run.stderr.startswith("compare.py: ") and len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["channel", "--systems", "pvm"], "no such system: pvm"),
        (["channel", "--bytes", "0"], "numbers above 0"),
        (["qreduce", "--json", "/no/such/folder/x"], "no such folder"),
        (["gram", "--sdpb", "/no/such/folder"], "no such folder"),
        (["speed"], "invalid choice"),
    ],
)
def test_bad_arguments(arguments, complaint):
    run = run_mpi(2, [sys.executable, "-m", "pchan", "bench", *arguments])
    assert run.returncode == 2 and complaint in run.stderr and run.stderr.count("see ") == 1, run.stderr


def test_results_carry_machine_and_commit():
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    assert len(files) > 10
    for file in files:
        facts = json.loads(file.read_text())["machine"]
        assert facts["cpu"] and facts["mpi"] and facts["kernel"] and facts["ranks"], file.name
        assert re.fullmatch(r"[0-9a-f]{40}( with changes)?", facts["commit"]), file.name
        assert file.name in README, file.name


def model(*arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "scale_model.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=clean_environment())


def test_scale_model(tmp_path):
    picture = tmp_path / "scale.png"
    run = model("--n", "1000", "--ranks-per-node", "8", "--plot", str(picture))
    assert run.returncode == 0 and picture.read_bytes().startswith(b"\x89PNG"), run.stderr
    rows = [line.split() for line in run.stdout.splitlines() if line.split()[:1] == ["4096"]]
    assert [len(row) for row in rows] == [8, 5]
    seconds = [float(x) for x in rows[0][1:]]
    assert all(seconds) and min(seconds) == seconds[0], "residues is not the fastest"


def test_scale_model_costs_grow_with_the_problem():
    def residues(*arguments):
        lines = [line.split() for line in model(*arguments).stdout.splitlines()]
        return [float(line[1]) for line in lines if len(line) == 8 and line[0].isdigit()]

    small, large, slow = (
        residues(*a) for a in (["--n", "1000"], ["--n", "2000"], ["--n", "1000", "--rate", "20"])
    )
    assert len(small) == 13
    assert all(a < b for a, b in zip(small, large, strict=True)) and all(
        a < b for a, b in zip(small, slow, strict=True)
    )
