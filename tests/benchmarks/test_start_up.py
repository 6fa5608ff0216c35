"""The benchmark's commands are those of today: one round, whose seconds nobody looks at."""

from __future__ import annotations

import pytest

from tests.benchmarks.start_up import COMMANDS, main
from tests.campaigns.rows import as_rows


@pytest.mark.slow
def test_every_command_runs_and_has_a_row(capsys):
    main(1)
    assert [row["verb"] for row in as_rows(capsys.readouterr().out)] == [name for name, _ in COMMANDS]
