"""Random English-like texts by seed, each of them new, so that no cache can answer for a model."""

import random
from collections.abc import Callable
from typing import Literal

Lengths = Literal["short", "mixed"]

_COMMON = (
    "a about above across after again against all almost along already also always among an and another any are "
    "around as ask at away back bank base be because become been before began behind being below best better between "
    "big black blue boat body book both box boy bring build but by call came can car care carry change city clear "
    "close cold come could country cover cross cut dark day deep did different do does door down draw during each "
    "early earth eat end enough even ever every eye face fact fall family far farm fast father feel feet few field "
    "find fire first fish five fly follow food for form found four free friend from front full game gave get girl "
    "give go gold good got great green ground group grow had half hand hard has have he head hear heat help her here "
    "high him his hold home horse hot hour house how hundred ice idea if in inch into is island it just keep kind "
    "king knew know land language large last late laugh lay lead learn leave left less let letter life light like "
    "line list little live long look lot love low made make man many map mark may me mean measure men might mile mind "
    "miss money moon more morning most mother mountain move much music must my name near need never new next night no "
    "north not note notice now number of off often oil old on once one only open or order other our out over own page "
    "paper part pass pattern people perhaps person picture piece place plain plan plant play point port power press "
    "problem produce pull put question quick rain ran reach read real record red remember rest right river road rock "
    "room round rule run said same saw say school science sea second see seem self sentence serve set several shape "
    "she ship short should show side simple since sing sit six size sleep slow small snow so some song soon sound "
    "south space special stand star start state stay step still stood stop story street strong study such sun sure "
    "surface system table tail take talk teach tell ten test than that the their them then there these they thing "
    "think this those though thought thousand three through time to together told too took top toward town travel "
    "tree true try turn two under unit until up upon us use usual very voice vowel walk want war warm was watch water "
    "way we week weight well went were west what wheel when where which while white who whole why will wind with "
    "without woman wonder wood word work world would write year yes yet you young your"
)
_WORDS = _COMMON.split()


def texts(rng: random.Random, lengths: Lengths, count: int) -> list[str]:
    """Give some texts: `short` ones of 6 to 16 words, or `mixed` ones as passages are, most short and a few long."""
    length = _LENGTHS[lengths]
    return [" ".join(rng.choices(_WORDS, k=length(rng))) for _ in range(count)]


def _short(rng: random.Random) -> int:
    return rng.randint(6, 16)


def _mixed(rng: random.Random) -> int:
    """Draw from a log-normal distribution: a median of 40 words, and a tail that is cut at 300."""
    return max(3, min(300, int(rng.lognormvariate(3.7, 0.9))))


_LENGTHS: dict[Lengths, Callable[[random.Random], int]] = {"short": _short, "mixed": _mixed}
