"""A first request to try, of what a model is for, as the page and `infinity serve` show it."""

from collections.abc import Collection
from typing import Any

_TEXT = "Hello, pool!"
_BY_TASK: dict[str, tuple[str, dict[str, Any]]] = {
    "embed": ("/v1/embeddings", {"input": [_TEXT]}),
    "rerank": ("/rerank", {"query": "Where is Paris?", "documents": ["In France.", "Bread is baked."]}),
    "classify": ("/classify", {"input": [_TEXT]}),
    "multivector": ("/pooling", {"input": [_TEXT]}),
    "sparse": ("/sparse", {"input": [_TEXT]}),
}


def first_request(model: str, tasks: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Give the path and the body; of several tasks for the first of these, and embeddings where none is known."""
    task = next((known for known in _BY_TASK if known in tasks), "embed")
    path, body = _BY_TASK[task]
    return path, {"model": model, **body}
