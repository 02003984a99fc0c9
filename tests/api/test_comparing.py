import numpy as np

from infinity_pool.api.comparing import cosine


def test_no_cosine_is_over_one() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    same = cosine(list(rows), list(rows))
    assert same.max() <= 1
    np.testing.assert_allclose(same, 1, atol=1e-6)
    np.testing.assert_allclose(cosine(list(rows), list(-rows)), -1, atol=1e-6)
