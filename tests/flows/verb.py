"""A verb in this process: what a person would see of it, without the second that a new interpreter takes.

The goldens run verbs as processes of their own.
"""

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import Result
from typer.testing import CliRunner

from flows.cli import app, main
from reticent import CardError


def reticent(*args: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder, with these variables and none of its own: exit code, output and errors."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RETICENT_", "PREFECT_"))}
    command = ["reticent", *map(str, args)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    world = patch.dict(os.environ, {**clean, **env}, clear=True), patch.object(sys, "argv", command)
    with world[0], world[1], chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
    said, errors = (stream.detach().getvalue().decode().replace("\r\n", "\n") for stream in (out, err))
    return subprocess.CompletedProcess(command, code, said, errors)


def invoke(*words: object, **more: Any) -> Result:
    """A verb by its words, as typer runs it: what it raised is in the result.

    Parameters
    ----------
    more
        Of :meth:`typer.testing.CliRunner.invoke`.
    """
    return CliRunner().invoke(app, [str(word) for word in words], **more)


def refusal(home: Path, *words: object, kind: type[Exception] = CardError) -> str:
    """The words with which a verb in a home is refused."""
    done = invoke("--home", home, *words)
    assert isinstance(done.exception, kind), (done.output, done.exception)
    return str(done.exception)


def told(folder: Path, run: str, file: str = "report.json") -> Any:
    """What a file of a run says, of the home in a folder."""
    return json.loads((folder / "home" / "runs" / run / file).read_text())


def answer(home: Path, *words: object, code: int = 0) -> Any:
    """What a verb says with ``--json`` in a home."""
    done = invoke("--home", home, *words, "--json")
    assert done.exit_code == code, (done.output, done.exception)
    return json.loads(done.stdout)
