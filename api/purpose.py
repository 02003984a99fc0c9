"""What texts are for, as Cohere's and Jina's clients say it, told to a model that tells it apart."""

from infinity_pool.broker.presence import WorkerInfo

_SIDES = {"query": ("search_query", ".query"), "document": ("search_document", ".passage")}


def purpose_of(worker: WorkerInfo, purpose: str | None) -> dict[str, str]:
    """
    Give the option by which texts get a model's prompt for a purpose, such as search_query or retrieval.passage.

    That is the prompt of the same name, else the one for that side of a search; nothing where the model has neither.
    """
    if purpose is None:
        return {}
    sides = [side for side, endings in _SIDES.items() if purpose.endswith(endings)]
    return next(({"input_type": name} for name in (purpose, *sides) if name in worker.prompts), {})
