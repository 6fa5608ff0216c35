"""Rows are in the store and in memory alone: polars spills none to a folder that no purge empties."""

import os
import subprocess
import sys

import polars as pl
import pytest

from tests.flows.shop import lay_out

COUNT = """
import sys
from pathlib import Path
from pipeline.declaration.card import load_any_card
from pipeline.logs.ingest import count_people
print(count_people(Path(sys.argv[1]), load_any_card(sys.argv[2])))
"""
BARE = """
import sys
import polars as pl
pl.scan_parquet(sys.argv[1] + "/*.parquet").unique().collect(engine="streaming")
"""


@pytest.mark.parametrize(
    ("code", "spills"),
    [(COUNT, False), (f"import polars{COUNT}", False), (BARE, True)],
    ids=["ours", "ours after polars", "polars alone"],
)
def test_what_memory_does_not_hold_is_not_written_beside_the_store(tmp_path, code, spills):
    """With a budget of a few megabytes, as on a machine that has no more left."""
    n = 600_000
    source = pl.struct(customer=pl.format("person-{}", pl.int_range(n)), mood=pl.lit("odd"))
    rows = pl.select(rule=pl.lit("unknown_label"), source=source)
    rows.write_parquet(tmp_path / "quarantine-0000.parquet", row_group_size=50_000)
    card, spilt = lay_out(tmp_path / "shop", log=[]) / "card.toml", tmp_path / "spill"
    short = {"POLARS_OOC_MEMORY_BUDGET_MB": "4", "POLARS_OOC_SPILL_MIN_BYTES": "1", "POLARS_OOC_SPILL_DIR": str(spilt)}
    command = [sys.executable, "-c", code, str(tmp_path), str(card)]
    told = subprocess.run(command, env={**os.environ, **short}, capture_output=True, text=True, check=True)
    assert spilt.exists() is spills, told.stderr
    assert spills or told.stdout.strip() == f"{{'unknown_label': {n}}}"
