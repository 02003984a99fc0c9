"""The texts that a model's own files, or a request, put in front of what is encoded."""

from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.text.options import Options

Facts = dict[str, Any]


def read_prompts(path: Path) -> Facts:
    """Read the prompts of a sentence-transformers folder: the default's name and the texts by name."""
    described = read_object(path / "config_sentence_transformers.json")
    prompts = {"query": "", "document": ""} | (described.get("prompts") or {})
    return {
        "prompts": {name: text or "" for name, text in prompts.items()},
        "default_prompt_name": described.get("default_prompt_name"),
    }


class Prompts:
    """Chooses the text that comes first, by the options `prompt` and `prompt_name`."""

    OPTIONS = ("prompt", "prompt_name")

    def __init__(self, facts: Facts) -> None:
        self._texts: dict[str, str] = facts["prompts"]
        self._default: str | None = facts["default_prompt_name"]

    def choose(self, options: Options) -> str:
        """Give the request's own text, the one it names, or the model's default; raises InvalidInput."""
        prompt, name = options.get("prompt"), options.get("prompt_name")
        if prompt is not None and name is not None:
            raise InvalidInput("give prompt or prompt_name, not both", param="prompt_name")
        if prompt is None:
            return self._named(self._default if name is None else name)
        if not isinstance(prompt, str):
            raise InvalidInput(f"prompt must be a text, not {type(prompt).__name__}", param="prompt")
        return prompt

    def _named(self, name: Any) -> str:
        if name is None:
            return ""
        if name not in self._texts:
            raise InvalidInput(f"there is no prompt_name {name!r}, only {', '.join(self._texts)}", param="prompt_name")
        return self._texts[name]
