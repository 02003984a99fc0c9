"""POST /embeddings, as OpenAI has it, and with a `modality` for images and sounds."""

from aiohttp import web

from infinity_pool.api.described import described
from infinity_pool.api.embedding import EmbeddingsBody, embed
from infinity_pool.api.shapes import Embeddings

routes = web.RouteTableDef()


@routes.post("/v1/embeddings")
@routes.post("/embeddings")
@described(takes=EmbeddingsBody, gives=Embeddings)
async def embeddings(request: web.Request) -> web.Response:
    """Embed texts, images or sounds."""
    return await embed(request)
