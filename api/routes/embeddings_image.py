"""POST /embeddings_image, for older clients of Infinity; /embeddings with `modality` "image" is the same."""

from aiohttp import web

from infinity_pool.api.described import described
from infinity_pool.api.embedding import EmbeddingsBody, embed
from infinity_pool.api.shapes import Embeddings

routes = web.RouteTableDef()


@routes.post("/v1/embeddings_image")
@routes.post("/embeddings_image")
@described(takes=EmbeddingsBody, gives=Embeddings)
async def embeddings_image(request: web.Request) -> web.Response:
    """Embed images, whatever the request's own `modality`."""
    return await embed(request, "image")
