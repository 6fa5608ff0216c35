"""What all parts of ``report.json`` have in common: closed, frozen, and dumped as they were given."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from pipeline.declaration.toml import table_in

# an integer stays one: 40 is not written as 40.0
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
Matrix = list[list[Number]]
# an object of JSON, as it is dumped for a file or for ``--json``; nothing reads it again
Dump = dict[str, Any]


def present(**parts: object) -> Dump:
    """Those parts that are there: one that is None is absent from what is dumped, and not null."""
    return {name: part for name, part in parts.items() if part is not None}


class Part(BaseModel):
    """An object of ``report.json``.

    A key that was not given is absent from the dump, which is something else than null; keys stay in the order in which
    they were given.  So what was read is written again byte for byte.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    _given: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _remember(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(data)
        if (given := table_in(data)) is not None:
            made._given = tuple(given)
        return made

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> Dump:
        told = handler(self)
        return {key: told[key] for key in self._given if key in told}

    def parts(self) -> Dump:
        """What was given, part by part, for another part that has them too."""
        return {key: getattr(self, key) for key in self._given}
