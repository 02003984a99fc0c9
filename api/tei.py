"""What the endpoints of text-embeddings-inference share: fields, the way to a model, and headers that tell times."""

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BeforeValidator

from infinity_pool.api.asking import Asked
from infinity_pool.api.bodies.reading import ModelBody
from infinity_pool.api.texts import TextsOrIds
from infinity_pool.broker.messages import Item, Result


def _capitalised(value: Any) -> Any:
    return value.capitalize() if isinstance(value, str) else value


Direction = Annotated[
    Literal["Left", "Right"], BeforeValidator(_capitalised, json_schema_input_type=Literal["Left", "Right"])
]
"""At which end a text is cut; its own tokenizer's, where none is given."""


class CutBody(ModelBody):
    """A request for something of texts, which are cut unless `truncate` is false; `model` is our own field."""

    truncate: bool | None = None
    truncation_direction: Direction | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        refused = {"truncate": False} if self.truncate is False else {}
        return refused | side_of(self.truncation_direction)


class InputsBody(CutBody):
    """A request for vectors of texts, token ids, or both."""

    inputs: TextsOrIds
    prompt_name: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        return super().options | ({} if self.prompt_name is None else {"prompt_name": self.prompt_name})


def side_of(direction: str | None) -> dict[str, Any]:
    """Give the side that texts are cut at, as a family is told of it."""
    return {} if direction is None else {"truncation_side": direction.lower()}


class Timed(Asked):
    """A request in hand whose answer tells what its time went into."""

    def __init__(self, request: web.Request) -> None:
        self._came = time.perf_counter()
        super().__init__(request)

    async def run_inputs(self, model: str, task: str, items: Sequence[Item], options: dict[str, Any]) -> Result:
        """Have a model run the field `inputs`; raises as `run` does."""
        self.check_count(items, "inputs")
        return await self.run(model, task, items, options, self.lane(model, items), "inputs")

    def told(self, model: str, items: Sequence[Item], result: Result) -> dict[str, str]:
        """Say what an answer has beside its outputs, in whole ms: in all, being tokenized, waiting and being run."""
        worker = self.known(model)
        device = worker.device.partition(":")[0] if worker else ""
        total = str(round(1000 * (time.perf_counter() - self._came)))
        headers = self.headers(model, result) | {
            "x-compute-type": {"cuda": "gpu"}.get(device, device or "unknown"),
            "x-compute-time": total,
            "x-compute-characters": str(sum(map(_chars, items))),
            "x-compute-tokens": str(result.tokens),
            "x-total-time": total,
        }
        if result.times is not None:
            headers["x-tokenization-time"] = str(round(result.times.prepared))
            headers["x-queue-time"] = str(round(result.times.queued))
            headers["x-inference-time"] = str(round(result.times.ran))
        return headers


def _chars(item: Item) -> int:
    """Count a text's characters, a pair's, or token ids."""
    return sum(map(len, item)) if isinstance(item, list) else len(item)
