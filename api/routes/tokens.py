"""
A model's tokenizer: POST /tokenize, /decode and /detokenize, as text-embeddings-inference and vLLM have them.

/tokenize is in both: `inputs` is for the first, `prompt` for the second.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from infinity_pool.api.bodies.reading import ModelBody
from infinity_pool.api.bodies.token_ids import ids_of
from infinity_pool.api.described import described, speak
from infinity_pool.api.dialects import openai, tei
from infinity_pool.api.listing import bare_response
from infinity_pool.api.rendering import dumps, json_response
from infinity_pool.api.tei import Timed
from infinity_pool.api.texts import Ids, Texts
from infinity_pool.broker.answers import Spelled
from infinity_pool.broker.messages import Result

routes = web.RouteTableDef()

_AT_ONCE = 2**10  # tokens rendered at a time, about a millisecond's work


class TokenizeBody(ModelBody):
    """What is asked for: `inputs`, a text or several, or `prompt`, one text, without the model's default prompt."""

    inputs: Texts | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    prompt_name: str | None = None
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _one_form(self) -> "TokenizeBody":
        if (self.inputs is None) == (self.prompt is None):
            raise PydanticCustomError("form", "give inputs, or prompt as vLLM has it")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """What is said of all texts."""
        return self.model_dump(include={"add_special_tokens", "prompt_name"}, exclude_none=True)


class Token(BaseModel):
    """A token: its text, and where it begins and ends in the text with its prompt, in characters; null if special."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Tokenized(BaseModel):
    """A prompt's tokens, as vLLM gives them."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


@routes.post("/tokenize")
@described(takes=TokenizeBody, gives=list[list[Token]] | Tokenized, dialect=tei, others=(openai,))
async def tokenize(request: web.Request) -> web.Response:
    """Give the tokens of texts, none of which is cut."""
    asked = Timed(request)
    body = await asked.read(TokenizeBody)
    if body.prompt is not None:
        speak(request, openai)
        return await _tokenized(asked, body, body.prompt)
    texts = body.inputs or []
    asked.check_count(texts, "inputs")
    options = body.options | {"texts": True}
    result = await asked.run(body.model, "tokenize", texts, options, asked.lane(body.model, texts), "inputs")
    spelled = [Spelled(*output) for output in result.outputs]
    return bare_response(_token_pieces(spelled), 8 * result.tokens, asked.told(body.model, texts, result))


def _token_pieces(spelled: Sequence[Spelled]) -> Iterator[bytes]:
    for index, one in enumerate(spelled):
        yield b",[" if index else b"["
        for first in range(0, len(one.ids), _AT_ONCE):
            lead = b"," if first else b""
            yield lead + dumps(_tokens(one, slice(first, first + _AT_ONCE)))[1:-1]
        yield b"]"


def _tokens(one: Spelled, some: slice) -> list[dict[str, Any]]:
    ids, special = one.ids[some].tolist(), one.special[some].tolist()
    places = one.offsets[some].tolist() or [(None, None)] * len(ids)
    return [
        {"id": number, "text": text, "special": True, "start": None, "stop": None}
        if marked
        else {"id": number, "text": text, "special": False, "start": place[0], "stop": place[1]}
        for number, text, marked, place in zip(ids, one.strings[some], special, places, strict=True)
    ]


async def _tokenized(asked: Timed, body: TokenizeBody, prompt: str) -> web.Response:
    options = body.options if body.prompt_name else body.options | {"prompt": ""}
    result = await asked.run(body.model, "tokenize", [prompt], options, asked.lane(body.model, [prompt]), "prompt")
    one = Spelled(*result.outputs[0])
    worker = await asked.worker(body.model)
    answer = {
        "count": len(one.ids),
        "max_model_len": worker.max_length,
        "tokens": one.ids,
        "token_strs": one.strings if body.return_token_strs else None,
    }
    return json_response(answer, headers=asked.told(body.model, [prompt], result))


class DecodeBody(ModelBody):
    """What is asked for: the token ids of a text or of several."""

    ids: Ids
    skip_special_tokens: bool = True


@routes.post("/decode")
@described(takes=DecodeBody, gives=list[str], dialect=tei)
async def decode(request: web.Request) -> web.Response:
    """Give the texts of token ids."""
    asked = Timed(request)
    body = await asked.read(DecodeBody)
    asked.check_count(body.ids, "ids")
    result = await _decoded(asked, body.model, body.ids, body.skip_special_tokens, "ids")
    return json_response(result.outputs, headers=asked.told(body.model, body.ids, result))


class DetokenizeBody(ModelBody):
    """What is asked for: the token ids of one text."""

    tokens: list[int] = Field(min_length=1)


class Detokenized(BaseModel):
    """Their text, special tokens and all."""

    prompt: str


@routes.post("/detokenize")
@described(takes=DetokenizeBody, gives=Detokenized)
async def detokenize(request: web.Request) -> web.Response:
    """Give the text of token ids."""
    asked = Timed(request)
    body = await asked.read(DetokenizeBody)
    ids = ids_of(body.tokens, "tokens")
    result = await _decoded(asked, body.model, ids, False, "tokens")
    return json_response({"prompt": result.outputs[0]}, headers=asked.told(body.model, ids, result))


async def _decoded(asked: Timed, model: str, ids: Sequence[Any], skip: bool, param: str) -> Result:
    return await asked.run(model, "decode", ids, {"skip_special_tokens": skip}, asked.lane(model, ids), param)
