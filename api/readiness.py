"""What /ready says: whether requests could be answered now, and if not, what is missing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.errors import InfinityError, InvalidInput, Overloaded, Unavailable
from infinity_pool.broker.messages import Item, Task
from infinity_pool.broker.presence import ModelStatus, WorkerInfo

_PATIENCE = 2.0  # s for the queue to say who is there
_DEEP_PATIENCE = 5.0  # s for a job that runs through a model
_TEXT = "ready?"
_JOBS: dict[Task, Item] = {  # the smallest job of each task, and which one is preferred
    "embed": _TEXT,
    "sparse": _TEXT,
    "multivector": _TEXT,
    "classify": _TEXT,
    "rerank": [_TEXT, _TEXT],
}
_QUEUE = "the queue cannot be reached"


@dataclass(frozen=True)
class Report:
    """Whether requests can be answered; `not_ready` says why not, by model."""

    ready: bool
    reason: str | None
    models: int
    not_ready: dict[str, str]


class Readiness:
    """
    Looks whether the models that are `required` have a worker that could take a job.

    Where none is required any one will do, since a replica that can answer for some models should not be taken away
    from them for the sake of another. Once `stopping` is set, nothing is ready.
    """

    def __init__(self, client: QueueClient, required: Sequence[str]) -> None:
        self.stopping = False
        self._client = client
        self._required = required
        self._jobs: dict[str, asyncio.Task[str]] = {}

    async def report(self, model: str | None, *, deep: bool) -> Report:
        """Look at one model, or at all that count; `deep` runs a job through each."""
        if self.stopping:
            return Report(False, "this replica is stopping", len(self._client.status), {})
        asked = [model] if model else self._required
        try:
            async with asyncio.timeout(_PATIENCE):
                known = {each.name: each for each in await self._client.models()}
        except (Unavailable, TimeoutError):
            return Report(False, _QUEUE, len(self._client.status), dict.fromkeys(asked, _QUEUE))
        names = asked or list(known)
        reasons = await asyncio.gather(*(self._why_not(known.get(name), deep=deep) for name in names))
        missing = {name: why for name, why in zip(names, reasons, strict=True) if why}
        return Report(*_verdict(names, missing, any_will_do=not asked), len(known), missing)

    async def close(self) -> None:
        """Take back the jobs that are under way."""
        for job in self._jobs.values():
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)

    async def _why_not(self, model: ModelStatus | None, *, deep: bool) -> str:
        """Say why a model is not ready; nothing if it is."""
        if model is None:
            return "no worker has ever served it"
        if not model.ready:
            return ", ".join(sorted({_state(worker) for worker in model.workers})) or "no worker is alive"
        return await self._run_job(model) if deep else ""

    async def _run_job(self, model: ModelStatus) -> str:
        """Run a job with all others who ask at this time, so that asking often costs no more."""
        job = self._jobs.get(model.name)
        if job is None:
            job = self._jobs[model.name] = asyncio.create_task(self._try(model), name=f"check of {model.name}")
            job.add_done_callback(lambda _: self._jobs.pop(model.name))
        return await asyncio.shield(job)

    async def _try(self, model: ModelStatus) -> str:
        tasks = {task for worker in model.workers for task in worker.tasks}
        task = next((task for task in _JOBS if task in tasks), None)
        if task is None:
            return ""  # it is ready by its heartbeat; there is no job so small for what it does
        try:
            await self._client.submit(model.name, task, [_JOBS[task]], lane="online", timeout=_DEEP_PATIENCE)
        except Overloaded:
            return ""  # much waits for it, and it is at work: one that were stuck would have said so
        except InvalidInput:
            return ""  # it takes no texts, only images perhaps, and its worker said so
        except InfinityError as error:
            return f"it failed at a job: {error}"
        return ""


def _verdict(names: Sequence[str], missing: dict[str, str], *, any_will_do: bool) -> tuple[bool, str | None]:
    if not names:
        return False, "no model is served yet"
    if not missing or (any_will_do and len(missing) < len(names)):
        return True, None
    return False, f"not ready: {', '.join(missing)}"


def _state(worker: WorkerInfo) -> str:
    if worker.state == "stuck":
        return f"stuck: no batch was finished for {worker.stalled:.0f} s"
    if worker.state == "loading":
        share = "" if worker.progress is None else f" {worker.progress:.0%}"
        return f"loading: {worker.stage or 'starting'}{share}"
    return worker.state
