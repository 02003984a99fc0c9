"""What is prepared of jobs: their items as rows for batches, or, where no network is asked for, their answers."""

import logging
import traceback
from typing import Any, NamedTuple

from infinity_pool.broker.errors import InfinityError, InvalidInput, WorkerFailed
from infinity_pool.broker.messages import UNRUN, Item
from infinity_pool.workers.interface import Family, Head, Rows
from infinity_pool.workers.text.spelling import Speller

_TRUNCATE = "truncate"  # an option that every family has: false refuses items that would be cut
_ENDS = (KeyboardInterrupt, SystemExit)

logger = logging.getLogger(__name__)


class Request(NamedTuple):
    """What is prepared of one job."""

    task: str
    items: list[Item]
    options: dict[str, Any]


class Prepared(NamedTuple):
    """Several jobs' items in one set of rows: `jobs` are their places in what was asked for, in the rows' order."""

    head: Head
    rows: Rows
    jobs: list[int]


class Answered(NamedTuple):
    """What jobs get that need no network: the outputs and the tokens of each, and their places as above."""

    outputs: list[list[Any]]
    tokens: list[int]
    jobs: list[int]


Outcome = tuple[list[Prepared | Answered], dict[int, InfinityError]]


def merge(outcomes: list[Outcome]) -> Outcome:
    """Put the outcomes of jobs prepared one by one together, under their places in the list."""
    prepared = [one._replace(jobs=[place]) for place, (done, _) in enumerate(outcomes) for one in done]
    errors = {place: error for place, (_, failed) in enumerate(outcomes) for error in failed.values()}
    return prepared, errors


def prepare(family: Family, speller: Speller, requests: list[Request]) -> Outcome:
    """Prepare jobs in as few calls as their options allow."""
    errors: dict[int, InfinityError] = {}
    groups: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(f"{request.task} {request.options}" if request.options else request.task, []).append(place)
    prepared: list[Prepared | Answered] = []
    for places in groups.values():
        if requests[places[0]].task in UNRUN:
            prepared += _answer(speller, requests, places, errors)
        else:
            prepared += _prepare_group(family, requests, places, errors)
    return prepared, errors


def _answer(
    speller: Speller, requests: list[Request], places: list[int], errors: dict[int, InfinityError]
) -> list[Answered]:
    answered = Answered([], [], [])
    for place in places:
        try:
            outputs, tokens = speller.answer(*requests[place])
            answered.outputs.append(outputs)
            answered.tokens.append(tokens)
            answered.jobs.append(place)
        except BaseException as error:  # as below
            if isinstance(error, _ENDS):
                raise
            errors[place] = _as_ours(error)
    return [answered] if answered.jobs else []


def _prepare_group(
    family: Family, requests: list[Request], places: list[int], errors: dict[int, InfinityError]
) -> list[Prepared]:
    first = requests[places[0]]
    try:
        options = {name: value for name, value in first.options.items() if name != _TRUNCATE}
        head = family.head(first.task, options)
        items = [item for place in places for item in requests[place].items]
        rows = family.prepare(head, items, options)
        _check_length(rows, first.options, family.max_length)
        return [Prepared(head, rows, places)]
    except BaseException as error:  # whatever an item does to a tokenizer, a panic in Rust too, is that item's error
        if isinstance(error, _ENDS):
            raise
        if len(places) > 1:
            return [one for place in places for one in _prepare_group(family, requests, [place], errors)]
        errors[places[0]] = _as_ours(error)
        return []


def _check_length(rows: Rows, options: dict[str, Any], most: int) -> None:
    """Refuse items that were cut, where the request says that none may be."""
    truncate, asked = options.get(_TRUNCATE, True), options.get("truncate_prompt_tokens", -1)
    limit = f"the model's {most}" if asked in (None, -1) else f"the {asked}"
    if not isinstance(truncate, bool):
        raise InvalidInput(f"truncate must be true or false, not {truncate!r}", param=_TRUNCATE)
    if not truncate and rows.truncated.any():
        raise InvalidInput(f"is over {limit} tokens", item=int(rows.truncated.argmax()))


def _as_ours(error: BaseException) -> InfinityError:
    if isinstance(error, InfinityError):
        return error
    logger.error("preparing a job failed:\n%s", "".join(traceback.format_exception(error)))
    return WorkerFailed(f"the job could not be prepared: {type(error).__name__}")
