"""For the reference that `make site` makes: our "Returns" are sentences, where numpy's style has a type first."""

from __future__ import annotations

from typing import Any

from griffe import DocstringSectionReturns, Extension, Function


class PlainReturns(Extension):
    """Takes a lone first line for what is said, and the type from the signature."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Mend one function's docstring."""
        shown = func.docstring if func.path.startswith("flows.") else None
        for section in shown.parsed if shown else ():
            for item in section.value if isinstance(section, DocstringSectionReturns) else ():
                if item.annotation is not None and " " in str(item.annotation):
                    item.description = f"{item.annotation}\n{item.description}".strip().replace("``", "`")
                    item.annotation = func.returns
