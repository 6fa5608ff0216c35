"""Keyed digests of ids are HMAC, as splits and the people of a ledger were written by earlier versions."""

from __future__ import annotations

import hmac

import pytest

from pipeline.privacy.keyed import keyed_digests


@pytest.mark.parametrize("length", [0, 32, 64, 65])
def test_each_text_has_the_digest_of_the_standard_library(length: int):
    key, texts = bytes(range(length)), ["", "1", "ä", "b" * 999]
    assert [*keyed_digests(key, texts)] == [hmac.digest(key, text.encode(), "sha256") for text in texts]
