# SPDX-License-Identifier: MIT
"""A bar on the terminal of rank 0, drawn by rich or tqdm where one of them is installed; elsewhere nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[int, int], None]


@contextlib.contextmanager
def bar(label: str, wanted: bool) -> Iterator[Progress | None]:
    """What to call as progress(done, total); None without a terminal (standard error) or without a library."""
    draw = _library() if wanted and sys.stderr.isatty() else None
    if draw is None:
        yield None
        return
    with draw(label) as progress:
        yield progress


def _library() -> Any:
    for name, draw in (("rich.progress", _rich), ("tqdm", _tqdm)):
        with contextlib.suppress(ImportError):
            __import__(name)
            return draw
    return None


@contextlib.contextmanager
def _rich(label: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(label, total=None)
        yield lambda done, total: drawn.update(task, completed=done, total=total)


@contextlib.contextmanager
def _tqdm(label: str) -> Iterator[Progress]:
    from tqdm import tqdm

    with tqdm(desc=label, leave=False, file=sys.stderr) as drawn:

        def progress(done: int, total: int) -> None:
            drawn.total = total
            drawn.update(done - drawn.n)

        yield progress
