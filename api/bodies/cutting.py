"""What requests say of texts that are too long, the same at every endpoint that takes texts."""

from typing import Literal

from pydantic import Field

from infinity_pool.api.bodies.reading import ModelBody, Truncate

CUTTING = ("truncate", "truncate_prompt_tokens", "truncation_side")
"""The fields that say it."""


class CuttingBody(ModelBody):
    """A request to a model for something of texts; -1 tokens are as many as the model takes."""

    truncate: Truncate = None
    truncate_prompt_tokens: int | None = Field(None, ge=-1, le=2**20)
    truncation_side: Literal["left", "right"] | None = None
