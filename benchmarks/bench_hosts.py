"""bench_channel.py between two hosts over TCP: network namespaces joined by a bridge. Needs root and MPICH.

    python benchmarks/bench_hosts.py

16 messages each way, up to 512 bytes; the goal: five times as fast as C Startall + Waitall in the geometric mean.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "hosts"), str(ROOT / "tests")]

from _measure import geometric_mean  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402

SYSTEMS = "raw_waitall,raw_testall,pchan,pchan_connected"


def main() -> None:
    if reason := why_not():
        raise SystemExit(f"no hosts here: {reason}")
    with tempfile.NamedTemporaryFile(suffix=".json") as out, Hosts(2) as hosts:
        script = [sys.executable, str(ROOT / "benchmarks" / "bench_channel.py"), "--json", out.name]
        grid = ["--bytes", "1,8,64,512", "--pairs", "16", "--systems", SYSTEMS]
        job = hosts.run((1, 1), *script, *grid, timeout=120)
        print(job.output)
        if job.returncode:
            raise SystemExit(job.returncode)
        cells = json.loads(Path(out.name).read_text())["cells"]
    ratio = geometric_mean(c["us"]["raw_waitall"] / c["us"]["pchan_connected"] for c in cells)
    print(f"two hosts, 16 pairs up to 512 B: C Waitall's time / connected {ratio:.2f}, goal >= 5: "
          f"{'reached' if ratio >= 5 else 'MISSED'}")  # fmt: skip


if __name__ == "__main__":
    main()
