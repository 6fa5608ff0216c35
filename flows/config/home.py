"""Surroundings of a job: places of store, runs, cards and recipes, memory and machines, and reports of progress."""

import operator
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from pipeline.declaration.card import AnyCard, CardError, load_any_card
from pipeline.declaration.lineage import catalogs
from pipeline.files import make_folder
from pipeline.logs.summing import DEFAULT_MEMORY, HERE, Resources


def find_card(name: str, shelf: Path | None = None) -> Path:
    """A card by path, folder or name on the shelf."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path / "card.toml" if path.is_dir() else path
    candidates = [s / name / "card.toml" for s in catalogs(shelf)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    names = sorted({p.parent.name for s in catalogs(shelf) for p in s.glob("*/card.toml")})
    raise CardError(f"no card {name!r} on the shelf; there are: {', '.join(names) or 'none'}. Give a name or a path")


HOME = "RETICENT_HOME"
"""Environment variable: the home where none is named."""
SERVED = "RETICENT_SERVED"
"""Environment variable: the recipe that ``serve`` was started with, which a deployed run may name for that reason."""
CardLike = str | Path | AnyCard
"""A card, its path or folder, or the name of a dataset in the catalog."""


def card_at(card: CardLike, shelf: Path | None = None) -> AnyCard:
    """Load a card by path or name; a loaded one is returned.

    Raises CardError if there is none, or it is wrong.
    """
    return load_any_card(find_card(str(card), shelf)) if isinstance(card, str | Path) else card


def find_recipe(name: str | Path) -> Path:
    """A recipe by path or by the name of a shipped one."""
    path = Path(name)
    return path if path.suffix == ".toml" or path.is_file() else shipped_recipe(str(name))


def shipped_recipe(name: str) -> Path:
    """Path of a shipped recipe.

    Raises CardError if there is none of that name.
    """
    folder = Path(__file__).resolve().parents[1] / "recipes"
    shipped = folder / f"{name}.toml"
    if shipped.is_file():
        return shipped
    names = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
    raise CardError(f"no recipe {name!r}; shipped ones: {names}. Give a name or a path")


def paper_studies(name: str) -> dict[str, Path]:
    """The shipped study of a paper by name; every one for ``all``.

    Raises CardError if there is none of that name.
    """
    folder = Path(__file__).resolve().parents[1] / "recipes" / "papers"
    shipped = {p.stem: p for p in sorted(folder.glob("*.toml"))}
    if name != "all" and name not in shipped:
        raise CardError(f"reproduce: no study {name!r}; there are: {', '.join(shipped)}, all")
    return shipped if name == "all" else {name: shipped[name]}


def card_of_recipe(card: str, recipe_path: Path, shelf: Path | None = None) -> AnyCard:
    """The card a recipe names: relative to the recipe where such a file exists, else on the shelf."""
    beside = recipe_path.parent / card
    if beside.is_file() or (beside / "card.toml").is_file():
        return load_any_card(find_card(str(beside), shelf))
    return load_any_card(find_card(card, shelf))


@dataclass(frozen=True)
class Home:
    """``store/`` (mode 0700: raw rows, quarantine, committed releases), ``runs/`` and the synthetic ``ledger.db``.

    ``resources``: memory and machines for reading the store.
    """

    root: Path
    shelf: Path | None = None
    resources: Resources = HERE

    @property
    def store(self) -> Path:
        """Operator-only folder; created 0700."""
        path = self.root / "store"
        # their names are forced to disk: a ledger elsewhere outlives a power cut, and so must the store that it records
        make_folder(self.root)
        make_folder(path, 0o700)
        # a home that is only looked at may lie on a disk that is read only
        if path.stat().st_mode & 0o777 != 0o700:
            path.chmod(0o700)
        return path

    @property
    def runs(self) -> Path:
        """Published run folders."""
        path = self.root / "runs"
        make_folder(path)
        return path

    def ledger_of(self, card: AnyCard | None) -> Path | str:
        """Ledger that charges this card: home's for synthetic data, or without a card; else the one the card names."""
        if card is None or (where := card.budget.ledger) == "home":
            return self.root / "ledger.db"
        return where if "://" in where else (card.folder / where).resolve()


@contextmanager
def environment(name: str, value: str) -> Generator[None]:
    """An environment variable of this process, and of those it starts, until the block is left."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def open_home(
    home: Path | None = None, shelf: Path | None = None, memory: str | None = None, dask: str | None = None
) -> Home:
    """The home: ``--home``, else ``RETICENT_HOME``, else ``./.reticent``; with memory and machines for its sums."""
    # an empty variable counts as unset
    root = (home or Path(os.environ.get(HOME) or ".reticent")).resolve()
    if root.exists() and not root.is_dir():
        raise CardError(f"home {root} is a file; name a folder with --home or RETICENT_HOME")
    return Home(root, shelf, choose_resources(memory, dask))


_UNITS = {"": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_LEAST = 640 << 20


def choose_resources(memory: str | None = None, dask: str | None = None) -> Resources:
    """Memory and machines by the options, else ``RETICENT_MEMORY`` and ``RETICENT_DASK``, else 2 GiB and this machine.

    ``memory``: A size such as ``512MB``; None: the environment's, else 2 GiB.
    ``dask``: address of a scheduler, e.g. ``tcp://10.0.0.5:8786``; None: the environment's, else this machine.
    """
    memory, dask = memory or os.environ.get("RETICENT_MEMORY"), dask or os.environ.get("RETICENT_DASK")
    size = size_of(memory) if memory else DEFAULT_MEMORY
    if not dask:
        return Resources(size)
    if not re.fullmatch(r"[a-z]+://\S+", dask):
        raise CardError("--dask takes the address of a scheduler, e.g. tcp://10.0.0.5:8786")
    from pipeline.logs.elsewhere import OnDask

    return Resources(size, OnDask(dask))


def size_of(text: str) -> int:
    """Bytes of ``512MB``, ``1.5 GiB`` or a plain number.

    Raises CardError if it is none of these, or less than 640 MiB.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise CardError(f"--memory {text!r}: give a size such as 512MB or 1.5GiB")
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    if size < _LEAST:
        raise CardError(f"--memory {text!r}: at least {_LEAST >> 20} MiB is needed")
    return size


P = ParamSpec("P")
T = TypeVar("T")


class Calls(Protocol):
    """Calls a function once with the given arguments; one that draws noise is never tried again."""

    def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


Step = Callable[[str], Calls]
"""Makes the caller of a coarse part of a job, from the part's name."""


def plain_step(_: str) -> Calls:
    """Step of the shell: a plain call."""
    return operator.call


Say = Callable[[str], None]
Progress = Callable[[int, int | None], None]
"""Takes the amount done and the total, None where that is not known."""


@dataclass(frozen=True)
class Work:
    """A job's steps, messages and progress."""

    step: Step = plain_step
    say: Say = lambda _: None
    progress: Progress | None = None


ALONE = Work()
