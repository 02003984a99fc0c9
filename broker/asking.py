"""What a client can be asked for, task by task, all of it by submitting items and reading the outputs."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any, cast

from infinity_pool.broker.answers import Label, Ranked, check_top_n, labelled, listed, naming_documents, ranked
from infinity_pool.broker.mapping import MAX_IN_FLIGHT, Documents, Mapped, Mapper, check_documents
from infinity_pool.broker.messages import Array, Item, Lane, Result


class Embedding(ABC):
    """The method of embedding; whoever inherits it submits."""

    @abstractmethod
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
        """Run some items through a model and give their outputs, in order."""

    async def embed(
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
        binary and ubinary, whose rows are [width / 8] bytes. `timeout` is in seconds. Raises as `submit` does.
        """
        asked = {"dimensions": dimensions, "embedding_dtype": embedding_dtype}
        options = {name: value for name, value in asked.items() if value is not None}
        items = [texts] if isinstance(texts, str) else list(texts)
        result = await self.submit(model, "embed", items, options=options, lane=lane, timeout=timeout)
        vectors = cast(Array, result.outputs)
        return cast(Array, vectors[0]) if isinstance(texts, str) else vectors

    def map(
        self,
        model: str,
        documents: Documents,
        *,
        task: str = "embed",
        options: dict[str, Any] | None = None,
        lane: Lane = "bulk",
        max_in_flight: int = MAX_IN_FLIGHT,
        ordered: bool = True,
    ) -> AsyncGenerator[Mapped, None]:
        """
        Put documents, texts or `Document`s with ids, through a model; give each one's output or error, in their order.

        At most `max_in_flight` of them are open, from when they are read to when the next result is asked for; equal
        ones that are open are computed once. With `ordered=False` each comes as soon as it can. A document that cannot
        be run fails alone; what concerns all is raised: ModelNotFound, Unauthorized, Forbidden, InvalidInput that
        names an option. On the bulk lane outages and full queues are waited out. An error of the source is raised
        behind the results of what it gave before.

        A plain iterable is read in the event loop; one that has to wait should be an asynchronous one.
        """
        check_documents(documents)
        submit = partial(self.submit, model, task, options=options, lane=lane)
        mapper = Mapper(submit, max_in_flight=max_in_flight, ordered=ordered, waits=lane == "bulk")
        return mapper.results(documents)


class Asking(Embedding):
    """The methods of all tasks."""

    @abstractmethod
    async def labels(self, model: str) -> Sequence[str]:
        """Name a classifier's labels, in the order of its outputs."""

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
        options = {"raw_scores": True} if raw_scores else {}
        result = await self.score(model, query, documents, options=options, lane=lane, timeout=timeout)
        return ranked(cast(Array, result.outputs), top_n)

    async def score(
        self,
        model: str,
        query: str,
        documents: Sequence[str],
        *,
        options: dict[str, Any] | None = None,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Score documents for one query: `outputs` are float32 [n], in their order; raises as `submit` does."""
        pairs = [[query, document] for document in listed(documents, "documents")]
        with naming_documents():
            return await self.submit(model, "rerank", pairs, options=options, lane=lane, timeout=timeout)

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
        options = {"raw_scores": True} if raw_scores else {}
        items = listed(texts, "input")
        result = await self.submit(model, "classify", items, options=options, lane=lane, timeout=timeout)
        return labelled(cast(Array, result.outputs), await self.labels(model))
