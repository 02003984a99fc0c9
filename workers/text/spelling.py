"""The tasks `tokenize` and `decode`: a model's own tokenizer, for those who have none, equal to transformers'."""

from collections.abc import Sequence
from typing import Any

from infinity_pool.broker.answers import Spelled
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text.options import Options, check_names, flag_of
from infinity_pool.workers.text.prompts import Prompts
from infinity_pool.workers.text.saved_tokenizer import saved_facts
from infinity_pool.workers.text.token_ids import ids_of
from infinity_pool.workers.text.tokenizer import most_chars, not_text
from infinity_pool.workers.text.vocabulary import Vocabulary, read_vocabulary

_OPTIONS = {
    "tokenize": ("add_special_tokens", "texts", *Prompts.OPTIONS),
    "decode": ("skip_special_tokens",),
}
_NO_PROMPTS: dict[str, Any] = {"prompts": {"query": "", "document": ""}, "default_prompt_name": None}


class Speller:
    """
    Answers both tasks for any model with a tokenizer of texts; it is read when the first is asked for.

    Texts are never cut. One of over `most_chars` characters is refused, as are so many token ids: that much takes a
    preprocessing process from all others.
    """

    def __init__(self, files: ModelFiles, max_length: int) -> None:
        self._files = files
        self._most = most_chars(max_length)
        self._prompts = Prompts(_NO_PROMPTS | {key: files.extra[key] for key in _NO_PROMPTS if key in files.extra})
        self._special: bool = files.extra.get("special", True)
        self._read: Vocabulary | None = None

    def answer(self, task: str, items: Sequence[Item], options: Options) -> tuple[list[Any], int]:
        """
        Give each item's output, `Spelled` of a text or the text of token ids, and how many tokens these are.

        Raises InvalidInput, naming the option or item, and where the model has no tokenizer of texts.
        """
        check_names(options, _OPTIONS[task])
        self._read = self._read or self._vocabulary(task)
        return (self._tokenize if task == "tokenize" else self._decode)(self._read, items, options)

    def _vocabulary(self, task: str) -> Vocabulary:
        facts = saved_facts(self._files.described)
        if not facts:
            raise InvalidInput(f"this model cannot {task}: it has no tokenizer of texts", param="model")
        return read_vocabulary(self._files, facts)

    def _tokenize(self, vocabulary: Vocabulary, items: Sequence[Item], options: Options) -> tuple[list[Any], int]:
        prompt = self._prompts.choose(options)
        asked = flag_of(options, "add_special_tokens")
        special = self._special if asked is None else asked
        texts = [prompt + self._checked(item, index) for index, item in enumerate(items)]
        spelled = [vocabulary.spell(text, special) for text in texts]
        if flag_of(options, "texts"):
            spelled = [_with_texts(one, text) for one, text in zip(spelled, texts, strict=True)]
        return spelled, sum(len(one.ids) for one in spelled)

    def _checked(self, item: Item, index: int) -> str:
        if not isinstance(item, str):
            raise not_text([item], index)
        if len(item) > self._most:
            raise InvalidInput(f"is of {len(item)} characters, over the {self._most} that are tokenized", item=index)
        try:
            item.encode()
        except UnicodeEncodeError as error:
            raise not_text([item], index) from error
        return item

    def _decode(self, vocabulary: Vocabulary, items: Sequence[Item], options: Options) -> tuple[list[Any], int]:
        skip = flag_of(options, "skip_special_tokens") is not False
        rows: list[Array] = [ids_of(item, index, vocabulary.size) for index, item in enumerate(items)]
        for index, row in enumerate(rows):
            if len(row) > self._most:
                raise InvalidInput(f"is of {len(row)} token ids, over the {self._most} that are decoded", item=index)
        return [vocabulary.text_of(ids.tolist(), skip) for ids in rows], sum(map(len, rows))


def _with_texts(spelled: Spelled, text: str) -> Spelled:
    """Put the text that a token stands for in its place, where it is known; special tokens stay as they are."""
    if not len(spelled.offsets):
        return spelled
    places = zip(spelled.strings, spelled.special.tolist(), spelled.offsets.tolist(), strict=True)
    return spelled._replace(strings=[token if special else text[slice(*at)] for token, special, at in places])
