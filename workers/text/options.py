"""Checks of a request's options that families of text share; each raises InvalidInput and names the option."""

from collections.abc import Mapping, Sequence
from typing import Any

from infinity_pool.broker.errors import InvalidInput

INPUT_TYPES = ("query", "document")
"""The sides of a search, in which some models see a text differently."""

Options = Mapping[str, Any]


def check_task(task: str, tasks: Sequence[str]) -> None:
    """Refuse a task that the model has not."""
    if task not in tasks:
        raise InvalidInput(f"this model cannot {task}, only {', '.join(tasks)}", param="task")


def check_names(options: Options, names: Sequence[str]) -> None:
    """Refuse an option that the task has not."""
    if unknown := sorted(options.keys() - set(names)):
        there = "is" if len(names) == 1 else "are"
        raise InvalidInput(f"there is no option {unknown[0]!r}; there {there} {', '.join(names)}", param=unknown[0])


def count_of(options: Options, name: str, most: int) -> int | None:
    """Give an option that is a number from 1 to `most`, None if it is not given."""
    value = options.get(name)
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise InvalidInput(f"{name} must be from 1 to {most}, not {value!r}", param=name)
    return value


def flag_of(options: Options, name: str) -> bool | None:
    """Give an option that is true or false, None if it is not given."""
    value = options.get(name)
    if not isinstance(value, bool | None):
        raise InvalidInput(f"{name} must be true or false, not {value!r}", param=name)
    return value


def input_type_of(options: Options) -> str:
    """Give the side of a search that a text is of, by default a document."""
    value = options.get("input_type")
    if value is None:
        return "document"
    if value not in INPUT_TYPES:
        raise InvalidInput(f"input_type must be {' or '.join(INPUT_TYPES)}, not {value!r}", param="input_type")
    return str(value)


def modality_of(options: Options, modalities: Sequence[str]) -> str:
    """Give the kind of item that is sent, by default a text; refuse one that the model does not take."""
    value = options.get("modality", "text")
    if value not in modalities:
        raise InvalidInput(f"this model takes {' and '.join(modalities)}, not {value!r}", param="modality")
    return str(value)
