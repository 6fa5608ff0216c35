"""What a power cut may leave: the files that can be on a disk, given every write, sync and renaming before it.

A file's content is forced to disk by a sync of the file, its name by a sync of the folder.  Whatever was not forced
may be there or not, each write and each name for itself, in any order; of the last write half may be there.  One
renaming is whole or not at all, and forced with its new name.  Rights are those that were set last.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.disk import Operation

# of a path: its rights, and the bytes of a file, the target of a link, or None of a folder
Tree = dict[str, tuple[int, bytes | str | None]]
_DRAWN = 2


@dataclass(eq=False)
class _Node:
    """A file, a folder or a link: what was on disk at first, and what was written to it since."""

    mode: int
    first: bytes | str | dict[str, _Node]
    writes: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    names: dict[str, _Node] = field(default_factory=dict)
    size: int = 0
    known: dict[tuple[int, ...], bytes] = field(default_factory=dict)

    def content(self, kept: Sequence[tuple[int, int, bytes | None]]) -> bytes:
        """The bytes of a file after some of its writes; a write of None cuts it there."""
        assert isinstance(self.first, bytes)
        found = bytearray(self.first)
        for _, at, data in kept:
            if data is None:
                found[at:] = b""
                continue
            found.extend(bytes(max(0, at - len(found))))
            found[at : at + len(data)] = data
        return bytes(found)


@dataclass(frozen=True)
class _Naming:
    """One change of names, whole or not at all: what each name of a folder leads to from then on."""

    number: int
    changes: tuple[tuple[_Node, str, _Node | None], ...]


class History:
    """All operations on the files below a folder, from a state that was on disk.

    Parameters
    ----------
    root
        The folder, in the state before the first operation.
    operations
        That succeeded, in order.
    without
        Numbers of syncs that are taken out.
    """

    def __init__(self, root: Path, operations: Sequence[Operation], without: frozenset[int] = frozenset()) -> None:
        self.root, self.operations = root, operations
        self._top = _read(root)
        self._files: list[_Node] = []
        self._namings: list[_Naming] = []
        # file or folder -> when it was forced to disk
        self._syncs: dict[_Node, list[int]] = {}
        for number, o in enumerate(operations):
            if o.kind == "sync":
                if number not in without and (node := self._find(o.path)) is not None:
                    self._syncs.setdefault(node, []).append(number)
            else:
                self._do(number, o)

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._top
        for part in Path(path).relative_to(self.root).parts:
            node = None if node is None else node.names.get(part)
        return node

    def _place(self, path: str) -> tuple[_Node, str]:
        folder = self._find(str(Path(path).parent))
        assert folder is not None, path
        return folder, Path(path).name

    def _name(self, number: int, *changes: tuple[_Node, str, _Node | None]) -> None:
        self._namings.append(_Naming(number, changes))
        for folder, name, node in changes:
            folder.names.pop(name, None)
            if node is not None:
                folder.names[name] = node

    def _do(self, number: int, o: Operation) -> None:
        if o.kind in ("commit", "draw") or not Path(o.path).is_relative_to(self.root):
            return
        folder, name = self._place(o.path)
        node = folder.names.get(name)
        if o.kind in ("create", "make_folder", "point") and node is None:
            made = _Node(o.mode, {"create": b"", "make_folder": {}, "point": o.to}[o.kind])
            self._name(number, (folder, name, made))
            self._files += [made] if o.kind == "create" else []
            return
        assert node is not None, (number, o.kind, o.path)
        if o.kind == "protect":
            node.mode = o.mode
        elif o.kind in ("remove", "remove_folder"):
            self._name(number, (folder, name, None))
        elif o.kind in ("move", "link", "swap"):
            there, other = self._place(o.to)
            old = {"move": None, "link": node, "swap": there.names.get(other)}[o.kind]
            self._name(number, (folder, name, old), (there, other, node))
        else:
            at, data = {"create": (0, None), "truncate": (o.at, None)}.get(o.kind, (o.at, o.data))
            at = node.size if at < 0 else at
            node.size = at + len(data or b"") if data is None else max(node.size, at + len(data))
            if node not in self._files:
                self._files.append(node)
            node.writes.append((number, at, data))

    def pending(self, upto: int) -> list[int]:
        """Numbers of the operations before ``upto`` that were not forced to disk by then."""

        def forced(node: _Node) -> int:
            return max((s for s in self._syncs.get(node, ()) if s < upto), default=-1)

        found = [n for node in self._files for n, *_ in node.writes if forced(node) < n < upto]
        for naming in self._namings:
            # a name that came, or where none came the one that went
            folder = naming.changes[-1][0]
            if naming.number < upto and forced(folder) < naming.number:
                found.append(naming.number)
        return sorted(found)

    def tree(self, upto: int, dropped: frozenset[int] = frozenset(), torn: int | None = None) -> Tree:
        """What is on disk after the operations before ``upto`` but the ``dropped`` ones; of ``torn`` half is."""
        names = {}
        for naming in self._namings:
            if naming.number < upto and naming.number not in dropped:
                for folder, name, node in naming.changes:
                    names.setdefault(folder, dict(_first(folder)))[name] = node

        def walk(node: _Node, path: str) -> Iterator[tuple[str, tuple[int, bytes | str | None]]]:
            if isinstance(node.first, str):
                yield path, (node.mode, node.first)
            elif isinstance(node.first, bytes):
                kept = [w for w in node.writes if w[0] < upto and w[0] not in dropped]
                if kept and kept[-1][0] == torn:
                    n, at, data = kept.pop()
                    kept.append((-n, at, (data or b"")[: len(data or b"") // 2]))
                key = tuple(n for n, *_ in kept)
                if key not in node.known:
                    node.known[key] = node.content(kept)
                yield path, (node.mode, node.known[key])
            else:
                yield path, (node.mode, None)
                for name, below in names.get(node, _first(node)).items():
                    if below is not None:
                        yield from walk(below, f"{path}/{name}".lstrip("/"))

        return dict(walk(self._top, ""))

    def cuts(self, upto: int, random: Random) -> Iterator[Tree]:
        """What may be on disk if the power fails before operation ``upto``.

        All that is not forced to disk is there; nothing of it; all but one piece; one piece alone; some, drawn; and
        half of the last write.
        """
        pending = self.pending(upto)
        every = frozenset(pending)
        drops = [frozenset[int](), every, *({n} for n in pending), *(every - {n} for n in pending)]
        if len(pending) > 2:
            drops += [frozenset(n for n in pending if random.random() < 0.5) for _ in range(_DRAWN)]
        for dropped in dict.fromkeys(frozenset(d) for d in drops):
            yield self.tree(upto, dropped)
        if pending and pending[-1] == upto - 1 and self.operations[upto - 1].kind == "write":
            yield self.tree(upto, torn=upto - 1)


def _first(folder: _Node) -> dict[str, _Node | None]:
    assert isinstance(folder.first, dict)
    return dict(folder.first)


def _read(path: Path) -> _Node:
    mode = path.lstat().st_mode & 0o7777
    if path.is_symlink():
        return _Node(mode, str(path.readlink()))
    if path.is_dir():
        names = {p.name: _read(p) for p in sorted(path.iterdir())}
        return _Node(mode, names, names=dict(names))
    content = path.read_bytes()
    return _Node(mode, content, size=len(content))


def lay_down(tree: Tree, root: Path) -> None:
    """Put a tree in place of a folder."""
    shutil.rmtree(root)
    for path, (mode, what) in tree.items():
        there = root / path
        if isinstance(what, str):
            there.symlink_to(what)
            continue
        if what is None:
            there.mkdir()
        else:
            there.write_bytes(what)
        there.chmod(mode | 0o200)


def digest(tree: Tree) -> int:
    """Tells trees apart within a process."""
    return hash(frozenset((path, what) for path, (_, what) in tree.items()))
