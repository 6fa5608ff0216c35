"""``reticent ingest CARD``: logs to a validated snapshot and quarantine."""

from __future__ import annotations

import typer

from flows.terminal.progress import progress_line
from flows.terminal.screen import Context, Json, say, show

# above this share an accepted rule is worth a warning
_LOUD = 0.05


def ingest(context: typer.Context, card: str, as_json: Json = False) -> None:
    """Validate, bound contributions, partition; operator-only facts on stdout."""
    from flows.jobs.run import ingest_job
    from flows.server.engine import carry_out

    options: Context = context.obj
    with progress_line("ingest") as bar:
        r = carry_out("ingest", lambda step: ingest_job(card, options.home_folder(), step, bar, say))
    for rule, count in r["quarantined"].items():
        # the cap is the card's wish, and a closing row is a way to write an episode: neither is a fault of the log
        if rule not in ("over_cap", "closing_row") and count > _LOUD * max(1, r["rows"]):
            say(f"warning: {rule} touched {count:,} rows; look into the quarantine under {r['folder']}")
    lines = [
        f"{r['dataset']} snapshot {r['snapshot']}: {r['rows']:,} rows, {r['users']:,} users, "
        f"{r['episodes']:,} episodes, {r['partitions']} partitions   (operator only: not for publication)",
        *(f"  {rule}: {count:,} rows" for rule, count in r["quarantined"].items() if count),
    ]
    show(r, as_json, lambda: lines)
