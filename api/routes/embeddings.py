"""POST /embeddings, as OpenAI has it, and with a `modality` for images and sounds."""

from aiohttp import web

from infinity_pool.api.embedding import embed

routes = web.RouteTableDef()


@routes.post("/v1/embeddings")
@routes.post("/embeddings")
async def embeddings(request: web.Request) -> web.Response:
    """Embed texts, images or sounds."""
    return await embed(request)
