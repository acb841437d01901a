"""The code blocks of a Markdown page, and what a line of shell in one of them names."""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"(?:^(?<=\n)\n|\A)((?:    .*\n)+)", re.M)


@dataclass(frozen=True)
class Block:
    language: str  # "" for drawings and output, "shell" for indented ones
    text: str
    line: int  # of its first line in the page


def blocks(page: Path) -> list[Block]:
    """Fenced blocks, then indented ones, which are commands on all our pages."""
    text = page.read_text()
    fenced = [Block(m[1].strip(), m[2], text.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(text)]
    rest = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    return fenced + [
        Block("shell", textwrap.dedent(m[1]), rest.count("\n", 0, m.start(1)) + 1) for m in INDENTED.finditer(rest)
    ]


def program(page: Path) -> str:
    """All Python blocks as one program, on the lines where the page has them, so that a traceback fits the page."""
    lines = [""] * (page.read_text().count("\n") + 1)
    for block in blocks(page):
        if block.language == "python":
            body = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(body)] = body
    return "\n".join(lines)


def commands(text: str) -> list[list[str]]:
    """The words of each command, without comments, loops around it and `mpiexec -n N` before it."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|;", line.partition(" #")[0]):
            words = shlex.split(part.strip().removeprefix("do "))
            if words and words[0] not in ("for", "done"):
                found.append(words)
    return found
