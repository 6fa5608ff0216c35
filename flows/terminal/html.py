"""The blocks of a summary as one HTML file that loads nothing: for the operator's own eyes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape

from flows.terminal.terminal import Block, Drawn, Pairs, Place, Title

_STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{max-width:60rem;margin:2rem auto;padding:0 "
    "1rem}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}caption{text-align:left;font-"
    "weight:600;padding:.3rem 0}th,td{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
)


def page(title: str, blocks: Sequence[Block]) -> str:
    """The file's text.

    Parameters
    ----------
    title
        Of the page.
    blocks
        What a terminal would show.
    """
    allowed = f"sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}"
    policy = f"default-src 'none'; style-src '{allowed}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(_block(block) for block in blocks)
        + "\n</body></html>\n"
    )


def _block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>" if block else ""
    if isinstance(block, Title):
        return f"<h1>{escape(block.text)}</h1>" + (f"<p>{escape(block.more)}</p>" if block.more else "")
    if isinstance(block, Pairs):
        return _table((), block.rows, 2, "")
    if isinstance(block, Place):
        return f"<p>{escape(block.name)}: {escape(block.where)}</p>"
    if isinstance(block, Drawn):
        return ""
    return _table(block.head, block.rows, block.left, block.title)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int, title: str) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        each = (f"<{tag}{'' if i < left else ' class=n'}>{escape(cell)}</{tag}>" for i, cell in enumerate(cells))
        return f"<tr>{''.join(each)}</tr>"

    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}{line(head, 'th') if head else ''}{''.join(line(row, 'td') for row in rows)}</table>"
