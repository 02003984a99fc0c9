"""Where a request wants its texts cut: at which end, and to how many tokens, as vLLM names it."""

from typing import NamedTuple

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.text.options import Options

CUTS = ("truncate_prompt_tokens", "truncation_side")
"""The options that say it."""

_COUNT, _SIDE = CUTS
_SIDES = ("left", "right")
_USUAL = -1  # the model's own limit


class Cut(NamedTuple):
    """How many tokens are kept, special ones included, and whether those before them go, rather than those after."""

    length: int
    left: bool


def cut_of(options: Options, usual: Cut, added: int) -> Cut:
    """
    Give where texts are cut, by default as `usual`; `added` tokens of each are not its own and always stay.

    Raises InvalidInput, naming the option.
    """
    count, side = options.get(_COUNT), options.get(_SIDE)
    if side is not None and side not in _SIDES:
        raise InvalidInput(f"{_SIDE} must be {' or '.join(_SIDES)}, not {side!r}", param=_SIDE)
    left = usual.left if side is None else side == "left"
    if count is None or (type(count) is int and count == _USUAL):
        return Cut(usual.length, left)
    if type(count) is not int or not added < count <= usual.length:
        least = f", or from {added + 1}" + (f" ({added} are added to each text)" if added else "")
        message = f"{_COUNT} must be {_USUAL}{least} to the model's {usual.length}, not {count!r}"
        raise InvalidInput(message, param=_COUNT)
    return Cut(count, left)
