"""The client that asks an API replica over HTTP, with the methods of the one that asks the queue."""

import asyncio
import io
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiohttp
import numpy as np
import orjson

from infinity_pool.api.clients.http_answers import Answer, label_scores_of, model_status_of, scores_of, vectors_of
from infinity_pool.api.clients.http_errors import error_of
from infinity_pool.api.network.tls import client_context
from infinity_pool.broker.answers import Label, Ranked, check_top_n, listed, ranked
from infinity_pool.broker.asking import Embedding
from infinity_pool.broker.errors import DeadlineExceeded, InfinityError, InvalidInput, Unavailable, Unprocessable
from infinity_pool.broker.messages import Item, Lane, Result
from infinity_pool.broker.presence import ModelStatus
from infinity_pool.broker.splitting import join

_SHORTEST = 0.001  # s, of a timeout that is sent
_PART_ITEMS = 256  # in one request; more are sent as several
_PARTS_AT_ONCE = 4
_CUTS = {"truncate_prompt_tokens", "truncation_side"}
_PROMPTS = {"prompt", "prompt_name", "input_type"}
_OPTIONS = {
    "embed": {"dimensions", "embedding_dtype", "normalize", "pooling", *_PROMPTS, *_CUTS},
    "rerank": {"raw_scores", *_CUTS},
    "classify": {"raw_scores", *_CUTS},
}


class HttpClient(Embedding):
    """
    Asks an API replica; an async context manager.

    `url` is the server's, with or without /v1; `timeout` is in seconds, of a request that is not sent as bulk.
    `verify` is what an https server's certificate is checked with: True, what the system trusts; a file of
    certificates; False, nothing. `uds` is the Unix socket on which the server listens.
    """

    def __init__(
        self, url: str, *, api_key: str = "", timeout: float = 60.0, verify: bool | str = True, uds: str = ""
    ) -> None:
        self.timeout = timeout
        self._uds = uds
        self._ssl = True if verify is True else client_context(verify)
        self._base = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._status: dict[str, ModelStatus] = {}
        self._labels: dict[str, Sequence[str]] = {}

    async def __aenter__(self) -> Self:
        connector = aiohttp.UnixConnector(self._uds) if self._uds else aiohttp.TCPConnector(ssl=self._ssl)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def submit(
        self,
        model: str,
        task: str,
        items: Sequence[Item],
        *,
        options: dict[str, Any] | None = None,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> Result:
        """
        Run some items through a model and give their outputs, in order.

        Of `embed` they are float32 [n, width], or of the `embedding_dtype` that is asked for; of `rerank`, whose items
        are pairs of query and document, [n]; of `classify` [n, labels].

        Raises what the server answers as one of our errors, InvalidInput for a task or an option that cannot be sent,
        Unavailable if the server cannot be reached, DeadlineExceeded after `timeout` seconds. Cancelling the call takes
        the job back.
        """
        unknown = set(options or {}) - _OPTIONS.get(task, set())
        if task not in _OPTIONS or unknown:
            raise InvalidInput(f"the server has no {task} with {', '.join(unknown) or 'these items'}", param="task")
        body = {**(options or {}), "model": model}
        if task == "rerank":
            _check_pairs(items)
            sides = {"text_2": [pair[1] for pair in items], "text_1": [pair[0] for pair in items]}
            answers = await self._in_parts("/score", {**body, "task": task}, sides, lane, timeout)
            return join([scores_of(answer) for answer in answers])
        if task == "classify":
            answers = await self._in_parts("/classify", body, {"input": items}, lane, timeout)
            labels = await self.labels(model)
            return join([label_scores_of(answer, labels) for answer in answers])
        answers = await self._in_parts(
            "/embeddings", {**body, "encoding_format": "base64"}, {"input": items}, lane, timeout
        )
        return join([vectors_of(answer) for answer in answers])

    async def labels(self, model: str) -> Sequence[str]:
        """Name a classifier's labels, in the order of its outputs; raises Unavailable if no worker is ready now."""
        if model not in self._labels:
            await self.models()
            workers = self._status[model].workers if model in self._status else []
            found = [worker.labels for worker in workers if worker.labels]
            if not found:
                raise Unavailable(f"no worker of {model} is ready now", retry_after=2.0)
            self._labels[model] = found[0]
        return self._labels[model]

    async def rerank(
        self,
        model: str,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        raw_scores: bool = False,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> list[Ranked]:
        """
        Give documents by how well they answer a query, the best first, `top_n` of them at most.

        `raw_scores` are the network's own, before the model's activation. Raises as `submit` does.
        """
        check_top_n(top_n)
        body = {"model": model, "query": query, "raw_scores": raw_scores}
        answers = await self._in_parts("/rerank", body, {"documents": listed(documents, "documents")}, lane, timeout)
        scores = np.empty(len(documents))
        for answer in answers:
            for one in answer.data["results"]:
                scores[answer.first + one["index"]] = one["relevance_score"]
        return ranked(scores, top_n)

    async def classify(
        self,
        model: str,
        texts: Sequence[str],
        *,
        raw_scores: bool = False,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> list[list[Label]]:
        """
        Give the scores of all of a model's labels for each text, the best first.

        A pair of texts, as for entailment, is a list of two. `raw_scores` are the network's own, before the model's
        activation. Raises as `submit` does.
        """
        body = {"model": model, "raw_scores": raw_scores}
        answers = await self._in_parts("/classify", body, {"input": listed(texts, "input")}, lane, timeout)
        return [[Label(**one) for one in row] for answer in answers for row in answer.data["data"]]

    async def models(self) -> list[ModelStatus]:
        """Ask the server which models are served, and by whom; raises Unavailable if it cannot be reached."""
        _, found = await self._ask("GET", "/models")
        self._status = {model["id"]: model_status_of(model) for model in found["data"]}
        return list(self._status.values())

    @property
    def status(self) -> Mapping[str, ModelStatus]:
        """The models as of the last call of `models`, by name."""
        return self._status

    async def _in_parts(
        self,
        path: str,
        body: dict[str, Any],
        columns: Mapping[str, Sequence[Item]],
        lane: Lane | None,
        timeout: float | None,
    ) -> list[Answer]:
        """Ask for some items, one or several fields of the body that are as long, in requests of a bounded size."""
        field, items = next(iter(columns.items()))
        if not items:
            raise InvalidInput("there is nothing to run: the list is empty", param=field)
        if len(items) > _PART_ITEMS:
            lane = lane or "bulk"  # by the size of the whole, not of the last part
        timeout = self.timeout if timeout is None and lane != "bulk" else timeout
        headers = _headers(lane, timeout)
        starts = range(0, len(items), _PART_ITEMS)
        asks = [
            partial(self._part, path, body | _cut(columns, first, first + _PART_ITEMS), headers, first)
            for first in starts
        ]
        try:
            async with asyncio.timeout(timeout):
                return await _together(asks)
        except TimeoutError:
            raise DeadlineExceeded(f"{body['model']} gave no answer within {timeout:g} s") from None

    async def _part(self, path: str, body: dict[str, Any], headers: dict[str, str], first: int) -> Answer:
        """Ask for one part of a request, whose first item is the request's `first`."""
        data = io.BytesIO(_encoded(body))
        try:
            return Answer(first, *await self._ask("POST", path, data=data, headers=headers))
        except InfinityError as error:
            if error.item is not None:
                error.item += first
            raise

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[Mapping[str, str], Any]:
        """Give the headers and the JSON of an answer; raises what it says went wrong."""
        try:
            async with self._session.request(method, self._base + path, **options) as response:
                data = await response.read()
        except aiohttp.ClientError as error:
            raise Unavailable(f"the server cannot be reached: {error}", retry_after=1.0) from error
        if response.status != 200:
            raise error_of(response.status, response.headers, data)
        try:
            return response.headers, orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InfinityError(f"{self._base + path} did not answer with JSON") from error


def _check_pairs(items: Sequence[Item]) -> None:
    """Refuse what is no pair, of which one would be made."""
    for place, item in enumerate(items):
        if not (isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)):
            raise Unprocessable("must be a pair of two texts, the query and the document", param="input", item=place)


def _cut(columns: Mapping[str, Sequence[Item]], first: int, end: int) -> dict[str, list[Item]]:
    return {field: list(items[first:end]) for field, items in columns.items()}


def _headers(lane: Lane | None, timeout: float | None) -> dict[str, str]:
    """Give the headers by which the server learns what a request's own body has no place for."""
    headers: dict[str, str] = {"X-Infinity-Lane": lane} if lane else {}
    if timeout is not None:
        headers["X-Request-Timeout"] = f"{max(timeout, _SHORTEST):.3f}"
    return headers


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:  # a lone surrogate, or an item that is no text
        raise InvalidInput(f"an item cannot be sent: {error}", param="input") from error


async def _together(asks: Sequence[Callable[[], Coroutine[Any, Any, Answer]]]) -> list[Answer]:
    """Await all, a few at a time; the first failure cancels the others."""
    turns = asyncio.Semaphore(_PARTS_AT_ONCE)

    async def in_turn(ask: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        async with turns:
            return await ask()

    tasks = [asyncio.create_task(in_turn(ask)) for ask in asks]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
