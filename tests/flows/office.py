"""One run of people's data, published, and what somebody may do to its folder."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.ledger.chain import canonical, entry_hash
from pipeline.ledger.publication import file_digests, operator_key, publications
from pipeline.privacy.release_file import sha256_file
from tests.flows.verb import invoke
from tests.jobs import home_at, ledger_in, run_job


def reticent(root: Path, *args: object, card: bool = True):
    """Run a verb on the card's ledger; exit code and JSON, or the error it raised."""
    named = ["--card", root / "people"] if card else []
    done = invoke("--home", root / "home", *args, *named, "--json", catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


class Office:
    """One run of people's data in a home, and verbs on its card's ledger."""

    def __init__(self, root: Path, run: str) -> None:
        self.root, self.run, self.people, self.home = root, run, root / "people", home_at(root / "home")
        self.folder = self.home.runs / run

    def verb(self, *args: object, card: bool = True):
        return reticent(self.root, *args, card=card)

    def make(self, recipe: str) -> dict[str, Any]:
        """Run another recipe."""
        return run_job(str(self.people / f"{recipe}.toml"), self.home)


def edit(file: Path, change) -> None:
    facts = json.loads(file.read_text())
    change(facts)
    file.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def flip_policy(folder: Path) -> None:
    """Every action becomes another one, and the hashes beside it are updated."""
    table = pq.read_table(folder / "policy.parquet")
    other = pa.array((table["action"].to_numpy() + 1) % 3, table.schema.field("action").type)
    pq.write_table(table.set_column(table.schema.get_field_index("action"), "action", other), folder / "policy.parquet")
    edit(folder / "certificate.json", lambda f: f["sha256"].update(policy=sha256_file(folder / "policy.parquet")))


def forge(folder: Path) -> None:
    """The whole lie: another policy, a tiny ε, a larger unit, no assumptions, a proud value, another page."""
    flip_policy(folder)

    def lie(facts) -> None:
        sentence = re.sub(r"ε = [0-9.]+", "ε = 0.01", facts["guarantee"]["sentence"])
        facts["guarantee"].update(unit="a whole hospital", sentence=sentence)
        facts["assumptions"] = ["none"]

    for file in ("certificate.json", "report.json"):
        edit(folder / file, lie)
    edit(folder / "certificate.json", lambda f: f["registry"].update(epsilon=0.01, unit_of_privacy="a whole hospital"))
    edit(folder / "report.json", lambda f: f["value"].update(lower=2.99, upper=3.0, status="bound"))
    (folder / "report.html").write_text("<html>trust us</html>")


def vouch_for(root: Path, run: str) -> None:
    book = ledger_in(root / "people")
    [entry] = publications(book.entries(), run)
    told = {k: v for k, v in entry.body.items() if k not in ("key", "signature")}
    told["files"] = file_digests(root / "home" / "runs" / run)
    book.publish("shop", told, operator_key(root / "home" / "store"))


def exported(root: Path, to: Path) -> list[dict[str, Any]]:
    """Entries of the ledger, as an auditor is given them."""
    reticent(root, "ledger", "export", to)
    return json.loads(to.read_text())["entries"]


def chained(entries: list[dict[str, Any]], to: Path) -> Path:
    """The export of a chain that is whole, whatever is in it."""
    last, told = "0" * 64, list[dict[str, Any]]()
    for seq, e in enumerate(entries, 1):
        body = json.loads(canonical(e["body"]))
        found = entry_hash(seq, e["lineage"], e["kind"], e["at"], body, last)
        told.append({**e, "seq": seq, "body": body, "previous": last, "hash": found})
        last = found
    to.write_text(json.dumps({"schema_version": 1, "entries": told}))
    return to


def kinds_of(root: Path) -> list[str]:
    """Kinds of the ledger's entries, but those that say that a draw begins."""
    return [e.kind for e in ledger_in(root / "people").entries() if e.kind != "DRAW"]
