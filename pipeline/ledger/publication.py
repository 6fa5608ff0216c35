"""PUBLISH: the ledger vouches for every file of a run that people read, by digest.

The entry is appended when the run is published, after its COMMIT, signed by the operator's key.  It names what made the
files: where all of that is the same, the same inputs make the same bytes, and a difference means an edit.

The operator's key: Ed25519, one a store, made once; signs PUBLISH entries and heads kept elsewhere.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.declaration.card import CardError
from pipeline.files import private_folder, whole_file, write_file
from pipeline.ledger.chain import BudgetError, Entry, Head, unsigned_hash
from pipeline.privacy.release_file import sha256_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


KEY_FILE = ".operator-key.pem"
_PUBLIC = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class OperatorKey:
    """A private key, read from its file."""

    private: Ed25519PrivateKey

    @cached_property
    def public(self) -> str:
        """The public key, 64 hex digits."""
        return self.private.public_key().public_bytes_raw().hex()

    def sign_entry(self, digest: str) -> str:
        """Signature of an entry, 128 hex digits."""
        return self.private.sign(_entry_text(digest)).hex()

    def sign_head(self, head: Head) -> dict[str, Any]:
        """A head as plain signed JSON."""
        signature = self.private.sign(_head_text(head)).hex()
        return {"seq": head.seq, "hash": head.hash, "key": self.public, "signature": signature}


def _entry_text(digest: str) -> bytes:
    return f"reticent entry {digest}".encode()


def _head_text(head: Head) -> bytes:
    return f"reticent head {head}".encode()


def find_key(store: Path) -> OperatorKey | None:
    """The key of a store; None where there is none yet.

    Raises BudgetError if the file is damaged, or others than its owner may read it.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    file = store / KEY_FILE
    if not file.is_file():
        return None
    if file.stat().st_mode & 0o077:
        raise BudgetError(f"{file}: others may read the operator's key; `chmod 600` it, or move it away for a new one")
    try:
        private = load_pem_private_key(file.read_bytes(), None)
    except ValueError:
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise BudgetError(f"{file} is damaged; restore it, or move it away for a new one")
    return OperatorKey(private)


def operator_key(store: Path) -> OperatorKey:
    """The key of a store, made where there is none (0600)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if (key := find_key(store)) is not None:
        return key
    text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # two processes may come at once: the first one's key stays
    with (
        suppress(FileExistsError),
        whole_file(private_folder(store) / KEY_FILE, private=True, over=False, alone=False) as fresh,
    ):
        write_file(fresh, text)
    made = find_key(store)
    assert made is not None
    return made


def parse_public_keys(texts: Sequence[str]) -> frozenset[str]:
    """Public keys that a user trusts.

    ``texts``: each 64 hex digits, or the path of a file that holds such keys.
    Raises CardError if there is no key in one of them.
    """
    trusted = set[str]()
    for text in texts:
        if not (keys := _PUBLIC.findall(text)):
            with suppress(OSError, ValueError):
                keys = _PUBLIC.findall(Path(text).read_text(encoding="utf-8"))
        if not keys:
            raise CardError(f"--public-key {text}: neither 64 hex digits nor a file of them; `register` prints the key")
        trusted.update(keys)
    return frozenset(trusted)


def registered_keys(entries: Sequence[Entry]) -> list[str]:
    """Public keys that entries register, oldest first."""
    return [str(e.body["public_key"]) for e in entries if e.kind == "KEY"]


def signature_problem(e: Entry, keys: Sequence[str] | frozenset[str]) -> str | None:
    """The fault of an entry's signature, in words, or None."""
    key, signature = str(e.body.get("key")), str(e.body.get("signature"))
    if key not in keys:
        return f"entry {e.seq} is signed by another key, {key[:16]}…"
    return None if _holds(key, signature, _entry_text(unsigned_hash(e))) else f"entry {e.seq}: its signature is wrong"


def signatures_problem(entries: Sequence[Entry], trusted: frozenset[str] = frozenset()) -> str | None:
    """The first PUBLISH entry whose signature does not hold, in words, or None.

    ``trusted``: public keys from elsewhere; without any, a key that an earlier entry registers will do.
    """
    for e in entries:
        if e.kind == "PUBLISH":
            keys = trusted or frozenset(registered_keys([k for k in entries if k.seq < e.seq]))
            if (problem := signature_problem(e, keys)) is not None:
                return problem
    return None


def vouched_until(entries: Sequence[Entry], heads: Sequence[Head], trusted: frozenset[str]) -> int:
    """Number of the newest entry that a trusted key vouches for, with all before it; 0 where there is none."""
    published = (e.seq for e in entries if e.kind == "PUBLISH" and signature_problem(e, trusted) is None)
    return max([*published, *(h.seq for h in heads)], default=0)


def signed_head(text: str, trusted: frozenset[str]) -> Head:
    """The head in a file that was kept elsewhere, signed by a trusted key.

    Raises CardError if it is not signed, or not by one of these.
    """
    try:
        content: Any = json.loads(Path(text).read_text(encoding="utf-8"))
        head, key, signature = Head.of(content), str(content["key"]), str(content["signature"])
    except (OSError, ValueError, KeyError, TypeError):
        raise CardError(f"--head {text}: with --public-key, the file that `ledger head --json` wrote") from None
    if key not in trusted or not _holds(key, signature, _head_text(head)):
        raise CardError(f"--head {text}: not signed by a key that was given with --public-key")
    return head


def _holds(key: str, signature: str, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


NO_FILE = "no file"
OLDER = "not made again: older version"
_ROOT = Path(__file__).resolve().parents[2]
# of a maker: the program and a plug-in agent; another one may sum and learn differently
_PROGRAM = ("reticent", "source", "agent")
_PACKAGES = ("pipeline", "flows", "reports")
_LIBRARIES = ("numpy", "scipy", "pyarrow", "polars", "cvxpy", "clarabel", "pydantic", "jinja2", "vl-convert-python")


def file_digests(folder: Path) -> dict[str, str]:
    """sha256 of every plain file of a run's folder, by its path in the folder; :data:`NO_FILE` for all else there."""
    # a link may point anywhere, and a pipe may never end: neither is opened
    return {
        p.relative_to(folder).as_posix(): sha256_file(p) if p.is_file() and not p.is_symlink() else NO_FILE
        for p in sorted(folder.rglob("*"))
    }


def key_body(key: OperatorKey) -> dict[str, object]:
    """The body of a KEY entry: the public key of one host's operator."""
    return {"public_key": key.public, "algorithm": "ed25519"}


def publications(entries: Sequence[Entry], run: str) -> list[Entry]:
    """All PUBLISH entries of a run, oldest first, of any lineage: the dataset in its files may be forged."""
    return [e for e in entries if e.kind == "PUBLISH" and e.body.get("run") == run]


def publication_of(entries: Sequence[Entry], run: str, files: Mapping[str, str]) -> Entry | None:
    """The PUBLISH entry that vouches for these very files, else the newest one of the run; None where there is none."""
    published = publications(entries, run)
    return next((e for e in reversed(published) if e.body["files"] == files), published[-1] if published else None)


def files_problem(e: Entry, files: Mapping[str, str]) -> str | None:
    """The first file of a run that differs from its PUBLISH entry, in words, or None."""
    stated: Mapping[str, str] = e.body["files"]
    for name in sorted({*stated, *files}):
        if name not in files:
            return f"{name} is gone"
        if name not in stated:
            return f"{name} was added; entry {e.seq} knows nothing of it"
        if files[name] != stated[name]:
            return f"{name} was changed: entry {e.seq} vouches for {stated[name][:16]}…, it has {files[name][:16]}…"
    return None


def was_unvouched(entries: Sequence[Entry], commit: Entry | None) -> bool:
    """Whether a run without PUBLISH may be older than PUBLISH: its COMMIT precedes every key of the ledger.

    A version that publishes registers its host's key before it draws.

    ``commit``: of the run's release; None where nothing was charged.
    """
    first = next((e.seq for e in entries if e.kind in ("KEY", "PUBLISH")), None)
    return commit is None or first is None or commit.seq < first


@cache
def maker() -> dict[str, str]:
    """Program, its source, Python, machine, libraries and how the machine rounds; as PUBLISH entries hold it."""
    return {
        "reticent": _version("reticent"),
        "source": _source()[:16],
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{library: _version(library) for library in _LIBRARIES},
        "arithmetic": _arithmetic()[:16],
    }


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _source() -> str:
    """Sha256 over all files of the program without Python's caches."""
    total = hashlib.sha256()
    for package in _PACKAGES:
        # plain names, for speed: every run waits for this
        for folder, folders, names in os.walk(_ROOT / package):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = f"{folder}/{name}"
                digest = hashlib.sha256(Path(path).read_bytes()).digest()
                total.update(f"{path.removeprefix(str(_ROOT))}\0".encode() + digest)
    return total.hexdigest()


def _arithmetic() -> str:
    """Sha256 of the last digits of a fixed computation: processors with other vector units round sums otherwise."""
    x = (np.arange(1, 129 * 129 + 1, dtype=np.float64) % 977.0).reshape(129, 129) / 977.0
    square = x @ x.T + np.eye(129)
    results = [x @ square, x[0] @ x[1], x.sum(axis=1), np.exp(x), np.log(x + 1.0), np.sqrt(x)]
    results += [np.linalg.solve(square, x), np.linalg.eigvalsh(square), np.tanh(x), x.sum()]
    total = hashlib.sha256()
    for values in results:
        total.update(np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


def other_maker(made_by: object, now: Mapping[str, str]) -> str | None:
    """Differences between the version and machine of a run and those of now, in words; None where there are none.

    ``made_by``: of the run's PUBLISH entry; None of a run without one.
    """
    if not isinstance(made_by, dict):
        return "not comparable: nobody noted which version made it"
    differences = _differences(made_by, now, sorted({*now, *made_by}))
    return None if differences is None else f"not comparable: made under another version or machine ({differences})"


def older_version(made_by: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Why today's program need not make the same run of its release, in words; None where this program made it."""
    differences = _differences(made_by, now, [key for key in _PROGRAM if key in now])
    return None if differences is None else f"{OLDER} ({differences})"


def _differences(made_by: Mapping[str, str], now: Mapping[str, str], keys: Sequence[str]) -> str | None:
    differ = [key for key in keys if now.get(key) != made_by.get(key)]
    listed = ", ".join(f"{key} {made_by.get(key)}, here {now.get(key)}" for key in differ[:3])
    return f"{listed}{', …' if len(differ) > 3 else ''}" if differ else None
