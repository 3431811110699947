"""A program in an HTTP request."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fencepost_judge._language import FileName, Name, read_specs


class ProgramRequest(BaseModel):
    """A program: one file as `code`, or several as `sources`."""

    model_config = ConfigDict(extra="forbid")

    language: Name
    code: str | None = None
    sources: dict[FileName, str] | None = Field(default=None, max_length=64)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.code is None) == (self.sources is None):
            raise ValueError("give either code or sources")
        return self

    def files(self) -> dict[str, str]:
        if self.sources is not None:
            return dict(self.sources)
        names = {spec.name: spec.source for spec in read_specs()}
        return {names.get(self.language, "main"): self.code or ""}
