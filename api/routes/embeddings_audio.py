"""POST /embeddings_audio, for older clients of Infinity; /embeddings with `modality` "audio" is the same."""

from aiohttp import web

from infinity_pool.api.described import described
from infinity_pool.api.embedding import EmbeddingsBody, embed
from infinity_pool.api.shapes import Embeddings

routes = web.RouteTableDef()


@routes.post("/v1/embeddings_audio")
@routes.post("/embeddings_audio")
@described(takes=EmbeddingsBody, gives=Embeddings)
async def embeddings_audio(request: web.Request) -> web.Response:
    """Embed sounds, whatever the request's own `modality`."""
    return await embed(request, "audio")
