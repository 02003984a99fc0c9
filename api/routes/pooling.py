"""POST /pooling, as vLLM has it: a matrix of one vector a token from models that have one, else a vector."""

from typing import Any, ClassVar, Literal

from aiohttp import web
from pydantic import BaseModel

from infinity_pool.api.asking import Asked, named
from infinity_pool.api.bodies.cutting import CUTTING
from infinity_pool.api.bodies.reading import Dimensions
from infinity_pool.api.described import described
from infinity_pool.api.embedding import EmbeddingDtype
from infinity_pool.api.listing import list_response, matrix_pieces
from infinity_pool.api.rendering import Encoding, usage_of
from infinity_pool.api.shapes import Listed, Matrix, Vector
from infinity_pool.api.texts import TextsOrIds
from infinity_pool.api.vllm import VectorsBody
from infinity_pool.broker.presence import WorkerInfo

routes = web.RouteTableDef()

_UNPOOLED = {"pooling": "none", "normalize": True}
_TASKS = {"token_embed": "multivector", "multivector": "multivector", "embed": "embed"}


class PoolingBody(VectorsBody):
    """
    What is asked for; without a `task` it is matrices, if the model has them.

    With "token_embed" any encoder of texts gives some: what it has before pooling, of length 1 unless `use_activation`
    is false.

    Images and sounds are data URIs, base64 alone, or URLs. `dimensions` cuts the width of vectors, never their number.
    """

    files: ClassVar[str] = "input"

    input: TextsOrIds
    task: Literal["token_embed", "multivector", "embed"] | None = None
    encoding_format: Encoding | None = None
    dimensions: Dimensions = None
    input_type: Literal["query", "document"] | None = None
    embedding_dtype: EmbeddingDtype | None = None
    modality: Literal["text", "image", "audio"] = "text"

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told; text is what all take, so it is not said."""
        options = self.model_dump(include={"dimensions", "embedding_dtype", "input_type", *CUTTING}, exclude_none=True)
        options |= {} if self.embed_dtype is None else {"embedding_dtype": self.embed_dtype}
        options |= {} if self.use_activation is None else {"normalize": self.use_activation}
        return options if self.modality == "text" else options | {"modality": self.modality}


class Pooled(BaseModel):
    """An item's vectors, and their shape."""

    object: Literal["pooling"]
    index: int
    shape: list[int]
    data: Vector | Matrix


class PoolingAnswer(Listed):
    """Vectors, in the order of their items."""

    data: list[Pooled]


@routes.post("/v1/pooling")
@routes.post("/pooling")
@described(takes=PoolingBody, gives=PoolingAnswer)
async def pooling(request: web.Request) -> web.Response:
    """Give each item's vectors, with their shape."""
    asked = Asked(request)
    body = await asked.read(PoolingBody)
    asked.check_count(body.input, "input")
    worker = await asked.worker(body.model)
    task = _TASKS[body.task] if body.task else _task_of(worker)
    options = body.options
    if body.task == "token_embed" and "multivector" not in worker.tasks:
        task, options = "embed", _UNPOOLED | options
    elif task == "multivector" and body.use_activation:
        del options["normalize"]  # these always are
    asked.check_scope(body.model, task, body.input)
    items = await asked.items(body.model, body.input, body.modality)
    result = await asked.run(body.model, task, items, options, asked.lane(body.model, items))
    about = named("pool", body.model) | {"usage": usage_of(result)}
    numbers = sum(array.size for array in result.outputs)
    pieces = matrix_pieces(result.outputs, body.encoding_format or "float")
    return list_response(pieces, numbers, about, asked.headers(body.model, result))


def _task_of(worker: WorkerInfo) -> str:
    return "multivector" if "multivector" in worker.tasks else "embed"
