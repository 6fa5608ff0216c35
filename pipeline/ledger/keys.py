"""The operator's key: Ed25519, one a store, made once; signs what the ledger vouches for and heads kept elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from pipeline.declaration.card import CardError
from pipeline.files import private_folder, whole_file, write_file
from pipeline.ledger.chain import BudgetError, Entry, Head, unsigned_hash

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE = ".operator-key.pem"
_PUBLIC = re.compile(r"\b[0-9a-f]{64}\b")


class SignedHead(TypedDict):
    """Number and hash of the newest entry; ``key`` and ``signature`` where this host has a key."""

    seq: int
    hash: str
    key: NotRequired[str]
    signature: NotRequired[str]


@dataclass(frozen=True)
class OperatorKey:
    """A private key, read from its file.

    Parameters
    ----------
    private
        Stays in this process and in its file.
    """

    private: Ed25519PrivateKey

    @cached_property
    def public(self) -> str:
        """The public key, 64 hex digits."""
        return self.private.public_key().public_bytes_raw().hex()

    def sign_entry(self, digest: str) -> str:
        """Signature of an entry, 128 hex digits."""
        return self.private.sign(_entry_text(digest)).hex()

    def sign_head(self, head: Head) -> SignedHead:
        """A head as plain signed JSON."""
        return {
            "seq": head.seq,
            "hash": head.hash,
            "key": self.public,
            "signature": self.private.sign(_head_text(head)).hex(),
        }


def _entry_text(digest: str) -> bytes:
    return f"reticent entry {digest}".encode()


def _head_text(head: Head) -> bytes:
    return f"reticent head {head}".encode()


def find_key(store: Path) -> OperatorKey | None:
    """The key of a store; None where there is none yet.

    Parameters
    ----------
    store
        The operator's store, of which each host has its own.

    Raises
    ------
    BudgetError
        If the file is damaged, or others than its owner may read it.
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

    if (found := find_key(store)) is not None:
        return found
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
    """The public keys that somebody trusts.

    Parameters
    ----------
    texts
        Each 64 hex digits, or the path of a file that holds such keys.

    Raises
    ------
    CardError
        If there is no key in one of them.
    """
    found = set[str]()
    for text in texts:
        if not (keys := _PUBLIC.findall(text)):
            with suppress(OSError, ValueError):
                keys = _PUBLIC.findall(Path(text).read_text(encoding="utf-8"))
        if not keys:
            raise CardError(f"--public-key {text}: neither 64 hex digits nor a file of them; `register` prints the key")
        found.update(keys)
    return frozenset(found)


def registered_keys(entries: Sequence[Entry]) -> list[str]:
    """Public keys that entries register, oldest first."""
    return [str(e.body["public_key"]) for e in entries if e.kind == "KEY"]


def signature_problem(e: Entry, keys: Sequence[str] | frozenset[str]) -> str | None:
    """What is wrong with an entry's signature, in words, or None.

    Parameters
    ----------
    e
        A PUBLISH.
    keys
        Public keys that may have signed it.
    """
    key, signature = str(e.body.get("key")), str(e.body.get("signature"))
    if key not in keys:
        return f"entry {e.seq} is signed by another key, {key[:16]}…"
    return None if _holds(key, signature, _entry_text(unsigned_hash(e))) else f"entry {e.seq}: its signature is wrong"


def signatures_problem(entries: Sequence[Entry], trusted: frozenset[str] = frozenset()) -> str | None:
    """The first PUBLISH entry whose signature does not hold, in words, or None.

    Parameters
    ----------
    entries
        Of the ledger, chain already checked.
    trusted
        Public keys from elsewhere; without any, a key that an earlier entry registers will do.
    """
    for e in entries:
        if e.kind == "PUBLISH":
            keys = trusted or frozenset(registered_keys([k for k in entries if k.seq < e.seq]))
            if (problem := signature_problem(e, keys)) is not None:
                return problem
    return None


def check_signed_head(text: str, trusted: frozenset[str]) -> None:
    """Refuse a head kept elsewhere that no trusted key signed.

    Parameters
    ----------
    text
        As ``--head`` takes it: here the path of what ``ledger head --json`` printed.
    trusted
        Public keys.

    Raises
    ------
    CardError
        If it is not signed, or not by one of these.
    """
    try:
        told: Any = json.loads(Path(text).read_text(encoding="utf-8"))
        head, key, signature = Head(int(told["seq"]), str(told["hash"])), str(told["key"]), str(told["signature"])
    except (OSError, ValueError, KeyError, TypeError):
        raise CardError(f"--head {text}: with --public-key, the file that `ledger head --json` wrote") from None
    if key not in trusted or not _holds(key, signature, _head_text(head)):
        raise CardError(f"--head {text}: not signed by a key that was given with --public-key")


def _holds(key: str, signature: str, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True
