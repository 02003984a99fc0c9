import numpy as np
import pytest

from infinity_pool.workers.models.check import combinations
from infinity_pool.workers.networks.probes import least_cosine
from infinity_pool.workers.settings import ModelSettings


def test_the_reference_is_tried_first() -> None:
    assert combinations(ModelSettings(model="m"))[0] == ("torch", "cpu", "float32")
    assert combinations(ModelSettings(model="m", engine="onnx", dtype="float32")) == [("onnx", "cpu", "float32")]


def test_vectors_are_compared_by_angle_and_scores_by_value() -> None:
    one, other = np.array([[1.0, 0.0]], np.float32), np.array([[1.0, 1.0]], np.float32)

    assert least_cosine([one, one], [one, other]) == pytest.approx(0.5**0.5)
    assert least_cosine([np.array([0.5])], [np.array([0.75])]) == pytest.approx(0.75)
