"""What the endpoints for embeddings share: what is asked, and the way from there to vectors."""

from typing import Any, ClassVar, Literal

from aiohttp import web
from pydantic import AliasChoices, Field

from infinity_pool.api.ability import check_ability
from infinity_pool.api.asking import Asked
from infinity_pool.api.bodies.cutting import CUTTING
from infinity_pool.api.bodies.reading import Dimensions
from infinity_pool.api.jina import Inputs, JinaBody
from infinity_pool.api.listing import list_response, matrix_pieces
from infinity_pool.api.parts import Part, Work, items_of, run_parts
from infinity_pool.api.rendering import Encoding, embeddings_response, identity, result_headers, usage_of
from infinity_pool.api.vllm import VectorsBody
from infinity_pool.broker.messages import Result
from infinity_pool.broker.presence import WorkerInfo

Modality = Literal["text", "image", "audio"]
EmbeddingDtype = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]

_TOLD = ("dimensions", "normalize", "pooling", "embedding_dtype", "prompt", "prompt_name", "input_type", *CUTTING)
"""What a family is told as it is; it refuses what it does not know."""

_AS_VLLM = {"use_activation": "normalize", "embed_dtype": "embedding_dtype"}


class EmbeddingsBody(VectorsBody, JinaBody):
    """
    What is asked for; images and sounds are data URIs, base64 alone, or URLs they are fetched from.

    Token ids are run as they are. `pooling` is one of the ways of sentence-transformers, or none, in place of
    the model's own.
    """

    files: ClassVar[str] = "input"

    input: Inputs
    encoding_format: Encoding | None = None
    dimensions: Dimensions = Field(None, validation_alias=AliasChoices("dimensions", "output_dimension"))
    user: str | None = None
    modality: Modality = "text"
    normalize: bool | None = None
    pooling: str | None = None
    embedding_dtype: EmbeddingDtype | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    input_type: str | None = None


async def embed(request: web.Request, modality: Modality | None = None) -> web.Response:
    """Embed what a request brings: items of its own modality, unless the endpoint has one."""
    asked = Asked(request)
    body = await asked.read(EmbeddingsBody, "embed")
    asked.check_count(body.input, "input")
    modality = modality or body.modality
    worker = asked.known(body.model) if body.task is None else await asked.worker(body.model)
    task = "multivector" if body.return_multivector else _task_of(worker)
    check_ability(worker, task, modality)
    asked.check_scope(body.model, task, [item.value if isinstance(item, Part) else item for item in body.input])
    if any(isinstance(item, Part) for item in body.input):
        result = await _embed_parts(asked, body, task, worker)
    else:
        items = await asked.items(body.model, body.input, modality)
        options = _options(body, modality, worker)
        result = await asked.run(body.model, task, items, options, asked.lane(body.model, items))
    return _response(body, result, asked.known(body.model))


async def _embed_parts(asked: Asked, body: EmbeddingsBody, task: str, worker: WorkerInfo | None) -> Result:
    """Embed texts and images, each of which says which it is."""
    parts = [item if isinstance(item, Part) else Part("text", item) for item in body.input]
    work = Work(body.model, task, lambda modality: _options(body, modality, worker), "input")
    return await run_parts(asked, work, parts, await items_of(asked, work, parts))


def _task_of(worker: WorkerInfo | None) -> str:
    """Give one vector an item, or a matrix where the model has nothing else."""
    tasks = worker.tasks if worker else []
    return "multivector" if "multivector" in tasks and "embed" not in tasks else "embed"


def _response(body: EmbeddingsBody, result: Result, worker: WorkerInfo | None) -> web.Response:
    encoding = body.encoding_format or ("base64" if body.embedding_type == "base64" else "float")
    if not isinstance(result.outputs, list):
        return embeddings_response(body.model, result, encoding, worker)
    pieces = matrix_pieces(result.outputs, encoding, "embedding", "embedding")
    about = {"model": body.model, "usage": usage_of(result), **identity()}
    return list_response(pieces, sum(one.size for one in result.outputs), about, result_headers(result, worker))


def _options(body: EmbeddingsBody, modality: str, worker: WorkerInfo | None) -> dict[str, Any]:
    """Give what the model's family is told; text is what all take, so it is not said."""
    options = {ours: getattr(body, name) for name, ours in _AS_VLLM.items() if getattr(body, name) is not None}
    options |= {name: value for name in _TOLD if (value := getattr(body, name)) is not None}
    options = body.jina_options(worker if modality == "text" else None) | options
    return options if modality == "text" else options | {"modality": modality}
