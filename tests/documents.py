"""Pages whose blocks are files and commands: ``<!-- file: NAME -->`` and ``<!-- run -->`` before a fenced block."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"<!-- (?:file: (\S+)|run) -->\n```\w+\n(.*?)```", re.DOTALL)


def section(page: str, heading: str) -> str:
    """Text of ``docs/page`` below a heading, up to the next one of its level or above."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    level, rest = len(heading.split()[0]), text.partition(f"\n{heading}\n")[2]
    assert rest, (page, heading)
    # a comment in a block of code is no heading
    bare = re.sub(r"(?ms)^```.*?^```", lambda block: " " * len(block[0]), rest)
    end = re.search(rf"(?m)^#{{1,{level}}} ", bare)
    return rest[: end.start()] if end else rest


def blocks(page: str, heading: str = "") -> list[tuple[str, str]]:
    """Name (empty of a command) and text of each block of ``docs/page``, or of its part below a heading."""
    return _BLOCK.findall(section(page, heading) if heading else (ROOT / "docs" / page).read_text(encoding="utf-8"))


def rehearse(page: str, folder: Path, heading: str = "") -> list[str]:
    """Write and run the blocks of ``docs/page`` in order, in ``folder``; what each command block printed.

    The environment is a stranger's: nothing of ours is set, and the folder of the page's files is in PYTHONPATH.
    """
    printed: list[str] = []
    for name, text in blocks(page, heading):
        if name:
            (folder / name).write_text(text, encoding="utf-8")
        else:
            printed.append(run_script(text, folder))
    return printed


def run_script(text: str, folder: Path) -> str:
    """What a shell printed that ran the text in a folder as :func:`rehearse` does."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RETICENT_", "PREFECT_"))}
    shims = folder / "bin"
    shims.mkdir(exist_ok=True)
    for name, command in (("reticent", "-P -m flows.cli"), ("python", "-P"), ("python3", "-P")):
        (shims / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n', encoding="utf-8")
        (shims / name).chmod(0o755)
    env = {**kept, "PATH": f"{shims}:{kept['PATH']}", "PYTHONPATH": f"{ROOT}:{folder}"}
    script = ["bash", "-c", f"set -euo pipefail\n{text}"]
    done = subprocess.run(script, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout
