"""What every log reader must do: whatever one person's record holds, the rows of all others stay as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.audits.noise_contracts import Contract, promised
from pipeline.logs.formats import Reader
from pipeline.logs.readers.batch import RECORD_BYTES, Asked, Batch

_DAMAGES = (
    b"", b" ", b"\xff", b"\0", b'"', b"'", b",", b";", b"|", b"\t", b"\r", b"\\", b"{", b"[" * 1000, b"\xed\xa0\x80",
    b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"nan", b"1e999", b"9" * 400, b"x" * (RECORD_BYTES + 1),
)  # fmt: skip


@dataclass(frozen=True)
class LogReader:
    r"""A reader, and a good log to put it to the test.

    Parameters
    ----------
    reader
        As a card's ``source.format`` would find it.
    suffix
        Of the file that is written, dot included.
    records
        Whose record, and its bytes as they stand in the file; of three people at least.
    write
        Records -> the bytes of a file.  Lines: ``lambda records: b"\n".join(records)``.
    columns
        To be read; the first holds the user ids.
    """

    reader: Reader
    suffix: str
    records: Sequence[tuple[str, bytes]]
    write: Callable[[Sequence[bytes]], bytes]
    columns: Sequence[str]

    def batches(self, records: Sequence[bytes]) -> list[Batch]:
        """What the reader makes of a file of these records."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"log{self.suffix}"
            path.write_bytes(self.write(records))
            asked = Asked(list(self.columns))
            if self.reader.types is not None:
                self.reader.types(path, asked)
            return list(self.reader.read(path, asked))

    def rows(self, records: Sequence[bytes]) -> dict[str, list[tuple[Any, ...]]]:
        """Rows of each user, in their order."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for batch in self.batches(records):
            for row in batch.frame.rows():
                found.setdefault(str(row[0]), []).append(row)
        return found


READER = Contract[LogReader]("log reader")


@READER.check
def everybody_is_read(log: LogReader) -> None:
    """Of a good log nobody's record is set aside, and the columns are those asked for."""
    batches = log.batches([record for _, record in log.records])
    promised(all(len(batch.malformed) == 0 for batch in batches), "records of a good log are set aside")
    wrong = [batch.frame.columns for batch in batches if batch.frame.columns != list(log.columns)]
    promised(not wrong, f"the columns are {wrong[:1]}, asked was {list(log.columns)}")
    read, people = set(log.rows([record for _, record in log.records])), {user for user, _ in log.records}
    promised(read == people, f"{len(read)} people are read, the log holds {len(people)}")


@READER.check
def nobodys_bytes_move_another(log: LogReader) -> None:
    """One record is cut, filled with what is no text, grown beyond a record's size, or gone; all others stay."""
    whole = [record for _, record in log.records]
    good = log.rows(whole)
    for at, (user, record) in enumerate(log.records):
        for told, odd in _twins(record):
            try:
                found = log.rows([*whole[:at], *odd, *whole[at + 1 :]])
            except Exception as e:  # whatever it raises, all others are gone
                promised(False, f"record {at + 1} {told}: the file is refused ({type(e).__name__})")
                continue
            moved = [who for who, rows in good.items() if who != user and found.get(who) != rows]
            promised(not moved, f"record {at + 1} {told}: rows of {len(moved)} others change")


def _twins(record: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """What else one record might be; none has a newline, which would make two of it."""
    yield "is gone", []
    yield "stands there twice", [record, record]
    for share in (1, 2, 3):
        yield f"is cut at {share}/4", [record[: len(record) * share // 4]]
    for damage in _DAMAGES:
        yield f"ends in {damage[:8]!r}", [record + damage]
        yield f"holds {damage[:8]!r} in its middle", [record[: len(record) // 2] + damage + record[len(record) // 2 :]]
