"""Whether a model can do what is asked of it: refused at the door, where its workers have said what they can."""

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import UNRUN
from infinity_pool.broker.presence import WorkerInfo

_GIVING = {"sparse": "give sparse vectors", "multivector": "give matrices"}


def check_ability(worker: WorkerInfo | None, task: str, modality: str = "text") -> None:
    """
    Refuse a task or a kind of item that a model has not; `worker` stands for the model's.

    Raises InvalidInput that says what it can. Nothing is known without a worker, so then nothing is refused.
    """
    if worker is None:
        return
    if worker.tasks and task not in (*worker.tasks, *UNRUN):
        only = ", ".join(worker.tasks)
        raise InvalidInput(f"model {worker.model!r} cannot {_GIVING.get(task, task)}, only {only}", param="model")
    if modality not in worker.modalities:
        kinds = " and ".join(worker.modalities)
        raise InvalidInput(f"model {worker.model!r} takes {kinds}, not {modality}", param="modality")


def capabilities(worker: WorkerInfo) -> list[str]:
    """Name what a model can: its tasks, and image_embed and audio_embed where its vectors are of those too."""
    embeds = "embed" in worker.tasks or "multivector" in worker.tasks
    return [*worker.tasks, *(f"{kind}_embed" for kind in worker.modalities if embeds and kind != "text")]
