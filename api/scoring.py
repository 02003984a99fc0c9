"""What requests for scores share."""

from typing import Any

from aiohttp import web

from infinity_pool.api.bodies.cutting import CUTTING
from infinity_pool.api.rendering import identity, json_response, result_headers, usage_of
from infinity_pool.api.vllm import VllmBody
from infinity_pool.broker.messages import Result
from infinity_pool.broker.presence import WorkerInfo


class ScoringBody(VllmBody):
    """The fields that all of them have; `raw_scores`, vLLM's `use_activation: false`, are before the activation."""

    raw_scores: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What the model's family is told."""
        raw = {"raw_scores": True} if self.raw_scores or self.use_activation is False else {}
        return raw | self.model_dump(include={*CUTTING}, exclude_none=True)


def scored_response(
    kind: str, entries: dict[str, Any], model: str, result: Result, worker: WorkerInfo | None
) -> web.Response:
    """Answer with `entries`, made of a result's scores; `worker` stands for the model's."""
    answer = {
        "object": kind,
        **entries,
        "model": model,
        "usage": usage_of(result),
        **identity(),
    }
    return json_response(answer, headers=result_headers(result, worker))
