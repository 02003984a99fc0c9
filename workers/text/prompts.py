"""The texts that a model's own files, or a request, put in front of what is encoded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.text.options import Options
from infinity_pool.workers.text.token_ids import is_ids

Facts = dict[str, Any]


def read_prompts(path: Path) -> Facts:
    """Read the prompts of a sentence-transformers folder: the default's name and the texts by name."""
    described = read_object(path / "config_sentence_transformers.json")
    named = described.get("prompts") or {}
    prompts = {"query": "", "document": named.get("passage", "")} | named
    return {
        "prompts": {name: text or "" for name, text in prompts.items()},
        "default_prompt_name": described.get("default_prompt_name"),
    }


class Prompts:
    """Chooses the text that comes first, by one of the options `prompt`, `prompt_name` and `input_type`."""

    OPTIONS = ("prompt", "prompt_name", "input_type")

    def __init__(self, facts: Facts) -> None:
        self._texts: dict[str, str] = facts["prompts"]
        self._default: str | None = facts["default_prompt_name"]

    @property
    def names(self) -> tuple[str, ...]:
        """What may be named."""
        return tuple(self._texts)

    def choose(self, options: Options) -> str:
        """Give the request's own text, the one it names, or the model's default; raises InvalidInput."""
        given = [name for name in self.OPTIONS if options.get(name) is not None]
        if len(given) > 1:
            raise InvalidInput(f"give {' or '.join(given)}, not both", param=given[1])
        if not given:
            return "" if self._default is None else self._named(self._default, "prompt_name")
        value = options[given[0]]
        if not isinstance(value, str):
            raise InvalidInput(f"{given[0]} must be a text, not {type(value).__name__}", param=given[0])
        return value if given == ["prompt"] else self._named(value, given[0])

    def refuse_ids(self, items: Sequence[Item], options: Options) -> None:
        """Refuse token ids with a prompt that was asked for, since they are taken as they are."""
        given = [name for name in self.OPTIONS if options.get(name) is not None] if options else []
        if given and self.choose(options) and any(is_ids(item) for item in items):
            raise InvalidInput(f"token ids are taken as they are, without {given[0]}", param=given[0])

    def _named(self, name: str, option: str) -> str:
        if name not in self._texts:
            raise InvalidInput(f"there is no {option} {name!r}, only {', '.join(self._texts)}", param=option)
        return self._texts[name]
