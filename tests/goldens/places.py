"""Where the goldens lie, and a copy of the home to work in: the committed one is never touched."""

import json
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = HERE / "home"
SECOND = HERE / "second"
EXPECTED = HERE / "expected"
_WIDTH = 118


def copied(to: Path, home: Path = HOME) -> Path:
    """A golden home, copied to ``to``; its shelf is in it.  Its keys are private, which git does not keep."""
    shutil.copytree(home, to)
    for key in to.rglob("*.people-key"):
        key.chmod(0o600)
    return to


def names_a_machine(home: Path) -> list[Path]:
    """Files that name a place of some machine."""
    words = [b"/" + b"work", b"/" + b"tmp/", b"/" + b"home/", b"/" + b"root/"]
    return [p for p in home.rglob("*") if p.is_file() and any(w in p.read_bytes() for w in words)]


def expected(name: str) -> Any:
    return json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))


def write_expected(name: str, value: Any) -> None:
    """Write a golden: what fits on a line stands on one."""
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{name}.json").write_text(_printed(value) + "\n", encoding="utf-8")


def _printed(value: Any, indent: int = 0) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + indent < _WIDTH or not isinstance(value, dict | list) or not value:
        return line
    pad = " " * (indent + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + _printed(v, indent + 1) for v in value) + "\n" + " " * indent + "]"
    parts = (f"{pad}{json.dumps(k, ensure_ascii=False)}: {_printed(v, indent + 1)}" for k, v in value.items())
    return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
