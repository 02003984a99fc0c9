"""From a request to a model's answer: what endpoints share that ask one model for one task, or for two."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from infinity_pool.api.ability import check_ability
from infinity_pool.api.access.auth import CALLER
from infinity_pool.api.access.tenants import Cost
from infinity_pool.api.bodies.forms import FORM
from infinity_pool.api.bodies.reading import UNNAMED, AnyModelBody, lane_of, read
from infinity_pool.api.bodies.token_ids import refuse_ids
from infinity_pool.api.deadline import Deadline
from infinity_pool.api.keys import CLIENT, FETCHER, SETTINGS, TENANTS
from infinity_pool.api.media.files import files_of
from infinity_pool.api.rendering import result_headers
from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.errors import InvalidInput, ModelNotFound, Unavailable
from infinity_pool.broker.messages import Item, Lane, Result
from infinity_pool.broker.presence import ModelStatus, WorkerInfo

_LOOK = 0.25  # s between two looks whether a model that loads is ready

TOKENS = web.RequestKey("tokens", int)
"""What a request has had run."""


class Asked:
    """A request in hand; its time begins when this is made."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._client = request.app[CLIENT]
        self._caller = request[CALLER]
        self._counted = False  # as one of its key's requests, however many jobs it needs
        self.settings: HttpSettings = request.app[SETTINGS]
        self.deadline = Deadline(request, self.settings)

    async def read(self, kind: type[AnyModelBody], task: str = "") -> AnyModelBody:
        """
        Read and check the body, and put the served name in place of any other, where only one model can be meant.

        That is the only one, or of several the only one that has the task, if the request names none. Names are taken
        as they are under --strict-model-names. Raises as `reading.read` does, and Forbidden for another's model.
        """
        body = await read(self._request, kind, self.deadline.left("online"), self.settings.read_timeout)
        body = await self._meant(body, task)
        self._caller.check(body.model)
        return body

    async def _meant(self, body: AnyModelBody, task: str) -> AnyModelBody:
        if self._client.best(body.model) is not None or self.settings.strict_model_names:
            return body
        served = {one.name: one.workers for one in await self._client.models() if self._caller.may_see(one.name)}
        if body.model in served:
            return body
        names = [name for name, workers in served.items() if workers]
        if body.model == UNNAMED and len(names) > 1 and task:
            names = [name for name in names if any(task in worker.tasks for worker in served[name])]
            if len(names) > 1:
                raise _unnamed(names)
        return body.model_copy(update={"model": names[0]}) if len(names) == 1 else body

    def lane(self, model: str, items: Sequence[Item]) -> Lane:
        """Choose the lane by the request's header, else by what it asks for; see `lanes.usual_lane`."""
        return lane_of(self._request, self._client.usual_lane(model, items))

    def check_scope(self, model: str, task: str, items: Sequence[Item]) -> None:
        """Raise Forbidden for what the caller's key is not for; `run` does too, but files may be fetched before."""
        self._caller.check(model, task, self.lane(model, items))

    def check_count(self, items: Sequence[Any], param: str) -> None:
        """Refuse more items than one request may have."""
        if len(items) > self.settings.max_items:
            message = f"{param}: {len(items)} items, {self.settings.max_items} are allowed"
            raise InvalidInput(message, param=param)

    def known(self, model: str) -> WorkerInfo | None:
        """Give one worker that stands for all of a model's, as of the last look; None if none is ready."""
        return self._client.best(model)

    async def worker(self, model: str) -> WorkerInfo:
        """
        Give one worker that stands for all of a model's; while they only load, wait for one to be ready.

        Raises ModelNotFound, and Unavailable where no worker is alive or none is ready in time.
        """
        while (worker := self.known(model)) is None:
            known = {one.name: one for one in await self._client.models()}
            if self.known(model) is None:
                self._check_awaited(model, known)
                await asyncio.sleep(_LOOK)
        return worker

    def _check_awaited(self, model: str, known: dict[str, ModelStatus]) -> None:
        if model not in known:
            names = [*filter(self._caller.may_see, known)]
            if model == UNNAMED and names:
                raise _unnamed(names)
            told = ", ".join(names) or "none"
            raise ModelNotFound(f"no model {model!r} is served here; there is: {told}", param="model")
        if not known[model].workers:
            raise Unavailable(f"no worker of {model} is alive now", retry_after=2.0)
        if not self.deadline.left("online"):
            raise Unavailable(f"no worker of {model} is ready yet", retry_after=2.0)

    async def items(self, model: str, values: Sequence[Item], modality: str) -> list[Item]:
        """Give a model's items out of the field `input`: texts and token ids as they are, files decoded or fetched."""
        if modality == "text":
            self.check_texts(values)
            return list(values)
        return await self.files(model, refuse_ids(values, modality))

    async def files(self, model: str, values: Sequence[str], param: str = "input") -> list[Item]:
        """
        Decode or fetch the files of the field `param`, for a model that is served; together they fit into a body.

        Raises InvalidInput, naming the item, DeadlineExceeded, and what `worker` raises.
        """
        await self.worker(model)
        room, timeout = self.settings.max_body, self.deadline.left(self.lane(model, values))
        try:
            return list(await files_of(values, self._request.app[FETCHER], room, timeout))
        except InvalidInput as error:
            raise InvalidInput(error.message, param=param, item=error.item) from error

    def check_texts(self, values: Sequence[str]) -> None:
        """Refuse files of a form where texts are asked for."""
        if self._request.content_type == FORM and any(value.startswith("data:") for value in values):
            raise InvalidInput("files are no texts; say which modality they are", param="modality")

    def takes_only_texts(self, model: str) -> bool:
        """Whether a model has no other kind of item, as far as is known."""
        worker = self.known(model)
        return worker is None or worker.modalities == ["text"]

    async def run(
        self, model: str, task: str, items: Sequence[Item], options: dict[str, Any], lane: Lane, param: str = "input"
    ) -> Result:
        """Have a model run a task; raises the worker's error, whose item is one of the field `param`."""
        self._caller.check(model, task, lane)
        check_ability(self.known(model), task, options.get("modality", "text"))
        cost = self._cost(model, items, self.deadline.left(lane))

        def work() -> Awaitable[Result]:
            left = self.deadline.left(lane)
            about: dict[str, Any] = {"key": self._caller.id, "weight": self._caller.weight}
            return self._client.submit(model, task, items, options=options, lane=lane, timeout=left, **about)

        with naming_items(param), self._hiding_others(model):
            result = await self._request.app[TENANTS].run(self._caller, model, task, cost, work)
        self._request[TOKENS] = self._request.get(TOKENS, 0) + result.tokens
        return result

    @contextmanager
    def _hiding_others(self, model: str) -> Iterator[None]:
        """Tell a key that is for some models nothing of others, where its own is not served."""
        try:
            yield
        except ModelNotFound as error:
            if not self._caller.models:
                raise
            raise ModelNotFound(f"no model {model[:256]!r} is served here", param="model") from error

    def _cost(self, model: str, items: Sequence[Item], timeout: float) -> Cost:
        """Give what a job takes of the limits of its key, if it has any."""
        tokens = self._client.estimate(model, items) if self._caller.limited else 0
        requests, self._counted = int(not self._counted), True
        return Cost(requests, len(items), tokens, timeout)

    def headers(self, model: str, *results: Result) -> dict[str, str]:
        """Say what answers have beside their outputs."""
        truncated = sum(result.truncated for result in results)
        return result_headers(results[0]._replace(truncated=truncated), self.known(model))


async def together(*jobs: Coroutine[Any, Any, Result]) -> list[Result]:
    """Await several jobs; where one fails, the others are taken back."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def visible_models(request: web.Request) -> list[ModelStatus]:
    """Give the models that the caller's key is for; raises Unavailable."""
    return [one for one in await request.app[CLIENT].models() if request[CALLER].may_see(one.name)]


def _unnamed(names: Sequence[str]) -> InvalidInput:
    return InvalidInput(f"model: say which is meant; there is: {', '.join(names)}", param="model")


@contextmanager
def naming_items(param: str) -> Iterator[None]:
    """Tell what a worker says of an item as what is wrong with one of a field's, or with the one query for all."""
    try:
        yield
    except InvalidInput as error:
        if error.item is None:
            raise
        if error.param == "query" and param in ("documents", "texts"):
            raise type(error)(error.message, param="query") from error
        raise type(error)(error.message, param=param, item=error.item) from error


def named(kind: str, model: str) -> dict[str, Any]:
    """Give what vLLM's answers say of themselves."""
    return {"id": f"{kind}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
