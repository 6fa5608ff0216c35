"""One operator key for both of two worlds that are compared byte by byte: a fresh one is random, whatever the data."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pipeline.files import private_folder
from pipeline.ledger.publication import KEY_FILE


def same_key(store: Path) -> None:
    """Put the key of these tests into a store."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    file = private_folder(store) / KEY_FILE
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    file.chmod(0o600)
