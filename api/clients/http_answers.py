"""Reads a server's answers as the results that workers give."""

from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.broker.messages import Array, Result
from infinity_pool.broker.presence import ModelStatus, Waiting, WorkerInfo


class Answer(NamedTuple):
    """What came for a part of a request, whose first item is the request's `first`."""

    first: int
    headers: Mapping[str, str]
    data: Any


def vectors_of(answer: Answer) -> Result:
    """Read embeddings, in base64."""
    rows = [a2b_base64(entry["embedding"]) for entry in answer.data["data"]]
    return _result(answer, np.frombuffer(b"".join(rows), _number_format(answer.headers)).reshape(len(rows), -1))


def scores_of(answer: Answer) -> Result:
    """Read the scores of pairs."""
    return _result(answer, np.array([entry["score"] for entry in answer.data["data"]], np.float32))


def label_scores_of(answer: Answer, labels: Sequence[str]) -> Result:
    """Put the scores of each text, the best first, back into the order of the labels."""
    rows = [{one["label"]: one["score"] for one in row} for row in answer.data["data"]]
    return _result(answer, np.array([[row[label] for label in labels] for row in rows], np.float32))


def _result(answer: Answer, outputs: Array) -> Result:
    truncated = int(answer.headers.get("X-Infinity-Truncated", 0))
    return Result(answer.headers.get("X-Request-Id", ""), outputs, answer.data["usage"]["total_tokens"], truncated)


def _number_format(headers: Mapping[str, str]) -> "np.dtype[Any]":
    """Give what an answer's numbers are."""
    return np.dtype(headers.get("X-Infinity-Dtype", "float32")).newbyteorder("<")


def model_status_of(model: dict[str, Any]) -> ModelStatus:
    """Read a model of /models; fields that are not known here are passed over."""
    known = {item.name for item in fields(WorkerInfo)}
    workers = [WorkerInfo(**{name: worker[name] for name in known & worker.keys()}) for worker in model["workers"]]
    return ModelStatus(model["id"], workers, {lane: Waiting(**counts) for lane, counts in model["queue"].items()})
