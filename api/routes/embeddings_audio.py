"""POST /embeddings_audio, for older clients of Infinity; /embeddings with `modality` "audio" is the same."""

from aiohttp import web

from infinity_pool.api.embedding import embed

routes = web.RouteTableDef()


@routes.post("/v1/embeddings_audio")
@routes.post("/embeddings_audio")
async def embeddings_audio(request: web.Request) -> web.Response:
    """Embed sounds, whatever the request's own `modality`."""
    return await embed(request, "audio")
