"""What Jina's clients send to /v1/embeddings beside the fields that OpenAI's do."""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from infinity_pool.api.bodies.cutting import CuttingBody
from infinity_pool.api.parts import Part
from infinity_pool.api.purpose import purpose_of
from infinity_pool.api.texts import TextsOrIds
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Item
from infinity_pool.broker.presence import WorkerInfo

EmbeddingType = Literal["float", "base64", "binary", "ubinary"]
_ONE = Field(min_length=1, max_length=1)


def _only(value: Any) -> Any:
    """Take a list of one for that one."""
    if isinstance(value, list) and len(value) > 1:
        raise InvalidInput("embedding_type: one of them in a request; /v2/embed gives several", param="embedding_type")
    return value[0] if isinstance(value, list) and value else value


EmbeddingTypes = Annotated[
    EmbeddingType, BeforeValidator(_only, json_schema_input_type=EmbeddingType | Annotated[list[EmbeddingType], _ONE])
]
"""A number format, or a list of one."""

_KINDS = {"text": "text", "image": "image", "url": "image", "bytes": "image"}
_LATE = "late_chunking: texts are embedded each by itself here; send false, and chunks as texts of their own"


def _part(value: Any, item: int) -> Part:
    if isinstance(value, str):
        return Part("text", value)
    [(kind, content)] = value.items() if isinstance(value, dict) and len(value) == 1 else [("", None)]
    if kind not in _KINDS or not isinstance(content, str):
        raise InvalidInput("must be a text, or an object with a text or an image", param="input", item=item)
    return Part(_KINDS[kind], content)


def _or_objects(value: Any, other: ValidatorFunctionWrapHandler) -> list[Item | Part]:
    """Take objects with a text or an image, among texts or alone."""
    listed = [value] if isinstance(value, dict) else value
    texts = isinstance(listed, list) and listed and isinstance(listed[0], str | dict)
    if texts and any(isinstance(one, dict) for one in listed):
        return [_part(one, item) for item, one in enumerate(listed)]
    checked: list[Item | Part] = other(value)
    return checked


_Object = dict[str, str]

Inputs = Annotated[
    TextsOrIds,
    WrapValidator(
        _or_objects,
        json_schema_input_type=str | _Object | list[str | _Object] | list[int] | list[list[int]],
    ),
]
"""A list of texts, of arrays of token ids, or of objects with a text or an image."""


class JinaBody(CuttingBody):
    """
    Jina's fields.

    `task` is what texts are for, such as retrieval.query; it chooses the model's prompt, where it has one for that.
    """

    task: str | None = Field(None, max_length=100)
    embedding_type: EmbeddingTypes | None = Field(
        None, validation_alias=AliasChoices("embedding_type", "encoding_type")
    )
    normalized: bool | None = None
    late_chunking: bool | None = None
    return_multivector: bool | None = None

    @model_validator(mode="after")
    def _check_chunks(self) -> "JinaBody":
        if self.late_chunking:
            raise InvalidInput(_LATE, param="late_chunking")
        return self

    def jina_options(self, worker: WorkerInfo | None) -> dict[str, Any]:
        """Give what these fields mean to a model's family; `worker` stands for the model's."""
        chosen: dict[str, Any] = {} if self.normalized is None else {"normalize": self.normalized}
        if self.embedding_type in ("binary", "ubinary"):
            chosen["embedding_dtype"] = self.embedding_type
        return chosen | (purpose_of(worker, self.task) if worker else {})
