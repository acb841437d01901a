"""A small folder as SDPB's pmp2sdp writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Two blocks with two sample points, one with one, in 3 columns.
BLOCKS: list[dict[str, Any]] = [
    {
        "bilinear_bases_even": [["1", "2"], ["0.5", "-1.25e0"]],
        "bilinear_bases_odd": [["3", "1e-1"]],
        "B": [["1", "-2.5", "0"], ["0.125", "7", "3e2"]],
    },
    {"bilinear_bases_even": [["-.5"]], "bilinear_bases_odd": [], "B": [["2", "3", "+5."]]},
    {
        "bilinear_bases_even": [["1", "0"]],
        "bilinear_bases_odd": [["0", "1"]],
        "B": [["1", "2", "3"], ["4", "5", "6"]],
    },
]


def write_sdp_folder(path: Path) -> None:
    path.mkdir(exist_ok=True)
    (path / "control.json").write_text(json.dumps({"num_blocks": len(BLOCKS), "command": "by hand"}))
    for k, block in enumerate(BLOCKS):
        (path / f"block_info_{k}.json").write_text(json.dumps({"dim": 1, "num_points": len(block["B"])}))
        (path / f"block_data_{k}.json").write_text(json.dumps(block))
