"""What `infinity bench` is told."""

from dataclasses import dataclass
from functools import partial

from infinity_pool.broker.settings import option
from infinity_pool.cli.bench.scenarios import SCENARIOS, USUAL

_own = partial(option, scope="bench")


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """Which servers, which load, and how much of it."""

    url: str = option("The server.", default="http://127.0.0.1:7997")
    model: str = _own("The model to ask for; default: the only one that the server has.", default="")
    api_key: str = option("The server's key.", default="", secret=True)
    ca_file: str = _own("Certificates in PEM to trust for https, in place of the system's.", default="")
    prefix: str = _own("What comes before /embeddings in the server's paths, such as /v1.", default="")
    compare: str = _own("A second server, with its prefix if it has one; each scenario is run on both.", default="")
    compare_model: str = _own(
        "The model to ask the second server for; default: the same if it has that, else the only one it has.",
        default="",
    )
    compare_api_key: str = _own("The second server's key; default: the same.", default="", secret=True)
    raw: str = _own("Also run this model (a folder, hub id or package:…) bare, with no server.", default="")
    raw_engine: str = _own("What runs the bare model.", default="onnx", choices=("onnx", "torch"))
    scenario: str = _own(f"Scenarios, joined by commas, of {', '.join(SCENARIOS)}.", default=",".join(USUAL))
    requests: int = _own("Requests in each scenario; 0: as many as suit it.", default=0, minimum=0)
    duration: float = _own("Seconds for each scenario; 0: so many requests instead.", default=0.0, minimum=0)
    seed: int = _own("Where the random texts start.", default=1)
    json: str = _own("Also write the figures to this file.", default="")
