"""
What vLLM's users send beside an endpoint's fields: taken where it has a meaning here, refused where it is not done.

What changes no answer (`priority`, `request_id`, `cache_salt`, `user`) is passed over like any unknown field.
"""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from infinity_pool.api.bodies.cutting import CuttingBody


def _refused(why: str) -> BeforeValidator:
    def refuse(value: Any) -> None:
        if value is not None:
            raise PydanticCustomError("refused", "{why}", {"why": why})

    return BeforeValidator(refuse)


def _added(value: Any) -> Any:
    if value is False:
        raise PydanticCustomError("special", "special tokens are always added; send token ids to leave them out")
    return value


Messages = Annotated[None, _refused("chat messages are not taken; send texts")]
Processing = Annotated[None, _refused("images and sounds are processed as the model's own files say")]
Added = Annotated[Literal[True] | None, BeforeValidator(_added)]
Activation = Annotated[bool | None, Field(validation_alias=AliasChoices("use_activation", "activation"))]


class VllmBody(CuttingBody):
    """A request as vLLM's users write it."""

    messages: Messages = None
    mm_processor_kwargs: Processing = None
    add_special_tokens: Added = None
    use_activation: Activation = None


class VectorsBody(VllmBody):
    """
    A request for vectors.

    `use_activation` and `embed_dtype` are vLLM's names of `normalize` and `embedding_dtype`; numbers are little-endian.
    """

    embed_dtype: Literal["float32", "float16"] | None = None
    endianness: Literal["native", "little"] | None = None
