"""The operator's key is the operator's: of a file that others may read it is no key."""

from __future__ import annotations

import pytest

from pipeline.ledger.publication import KEY_FILE, find_key, operator_key
from reticent import BudgetError


@pytest.mark.parametrize("right", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_a_key_that_others_may_use_is_refused(tmp_path, right):
    made = operator_key(tmp_path)
    file = tmp_path / KEY_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o600 | right)
    with pytest.raises(BudgetError, match="others may read"):
        find_key(tmp_path)
    file.chmod(0o600)
    found = find_key(tmp_path)
    assert found is not None and found.public == made.public
