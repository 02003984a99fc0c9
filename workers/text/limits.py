"""How many tokens of a text are read."""

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import ModelFiles


def limit_of(files: ModelFiles, usual: int) -> int:
    """Apply the user's own limit, which may be over the model's usual one but not over what the network can run."""
    wanted, positions = files.max_length, files.extra["positions"]
    if wanted is None:
        return min(usual, positions or usual)
    if positions is not None and wanted > positions:
        raise InvalidInput(f"max_length {wanted} is over the {positions} positions of the model", param="max_length")
    return wanted
