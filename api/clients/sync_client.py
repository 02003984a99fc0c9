"""The same client for programs that do not await."""

import asyncio
import atexit
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from redis.asyncio import Redis

from infinity_pool.api.clients.client import Client
from infinity_pool.api.clients.handing import Handed, Reading
from infinity_pool.broker.answers import Label, Ranked
from infinity_pool.broker.errors import Cancelled
from infinity_pool.broker.mapping import MAX_IN_FLIGHT, Document, Mapped, check_documents
from infinity_pool.broker.messages import Array, Item, Lane, Result
from infinity_pool.broker.presence import ModelStatus

T = TypeVar("T")


class SyncClient:
    """
    A Client whose methods block; any number of threads may call them at the same time.

    `target` and `options` are those of Client, and its methods raise the same errors, and Cancelled once it is closed.
    It works in a thread of its own, from when it is made until `close`, or the end of its `with` block.
    """

    def __init__(self, target: str | Redis, **options: Any) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._calls: set[Future[Any]] = set()
        opened: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(target, options, opened)), name="infinity client", daemon=True
        )
        self._thread.start()
        opened.result()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(
        self,
        model: str,
        task: str,
        items: Sequence[Item],
        *,
        options: dict[str, Any] | None = None,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run some items through a model and give their outputs, in order; raises as the async client does."""
        return self._wait(self._client.submit(model, task, items, options=options, lane=lane, timeout=timeout))

    def embed(
        self,
        model: str,
        texts: str | Sequence[Item],
        *,
        dimensions: int | None = None,
        embedding_dtype: str | None = None,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> Array:
        """
        Embed texts: float32 [n, width], or [width] for a single one; `dimensions` cuts the width.

        An item may be a list of token ids. `embedding_dtype` names another number format: float16, int8, uint8, or
        binary and ubinary, whose rows are [width / 8] bytes. `timeout` is in seconds.
        """
        work = self._client.embed(
            model, texts, dimensions=dimensions, embedding_dtype=embedding_dtype, lane=lane, timeout=timeout
        )
        return self._wait(work)

    def rerank(
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

        `raw_scores` are the network's own, before the model's activation. `timeout` is in seconds.
        """
        return self._wait(
            self._client.rerank(model, query, documents, top_n=top_n, raw_scores=raw_scores, lane=lane, timeout=timeout)
        )

    def classify(
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
        activation. `timeout` is in seconds.
        """
        return self._wait(self._client.classify(model, texts, raw_scores=raw_scores, lane=lane, timeout=timeout))

    def map(
        self,
        model: str,
        documents: Iterable[Document | Item],
        *,
        task: str = "embed",
        options: dict[str, Any] | None = None,
        lane: Lane = "bulk",
        max_in_flight: int = MAX_IN_FLIGHT,
        ordered: bool = True,
    ) -> Iterator[Mapped]:
        """
        Put documents through a model as `Client.map` does: each one's output or error, in their order.

        They are read by the thread that asks for results.
        """
        check_documents(documents)
        begin = partial(self._client.map, model, task=task, options=options, lane=lane)
        handed = Handed(partial(begin, max_in_flight=max_in_flight, ordered=ordered))
        reading = Reading(documents, max_in_flight)
        try:
            step = self._wait(handed.step(reading.some(), reading))
            while not step.end:
                if step.result is not None:
                    yield step.result
                    reading.give_back()
                step = self._wait(handed.step(reading.some() if step.wants else [], reading))
        finally:
            with suppress(Cancelled):  # closing the client has closed it
                self._wait(handed.close())

    def models(self) -> list[ModelStatus]:
        """Ask which models are served, and by whom."""
        return self._wait(self._client.models())

    @property
    def status(self) -> Mapping[str, ModelStatus]:
        """The models as of the last look, by name."""
        return self._client.status

    def close(self) -> None:
        """Take back the calls in hand, which raise Cancelled, and close; a second close does nothing."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            for call in list(self._calls):
                call.cancel()
            self._loop.call_soon_threadsafe(self._ended.set)
            atexit.unregister(self.close)
        self._thread.join()

    async def _live(self, target: str | Redis, options: dict[str, Any], opened: Future[None]) -> None:
        """Open the client, keep it until `close`, and close it: all in the one loop that it lives in."""
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with Client(target, **options) as self._client:
                opened.set_result(None)
                await self._ended.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        call = self._started(work)
        try:
            return call.result()
        except CancelledError:
            raise Cancelled("the client was closed before the answer came") from None
        except BaseException:  # such as Ctrl-C: nobody waits for the answer any more
            call.cancel()
            raise
        finally:
            self._calls.discard(call)

    def _started(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._closed:
                work.close()
                raise Cancelled("the client is closed")
            call = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._calls.add(call)
        return call
