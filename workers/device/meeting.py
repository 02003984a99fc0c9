"""Where the workers that share a device of this machine meet."""

import os
import tempfile
from pathlib import Path

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device.devices import kind_of

_ON_CUDA = ("cuda", "tensorrt")


def folder_of(device: str) -> Path:
    """
    Give the folder in which this user's workers on a device of this machine meet, for them alone.

    It is in the temporary folder (TMPDIR). A GPU is known by what CUDA_VISIBLE_DEVICES calls it. Raises InvalidInput
    where another user has made the folder, or can write in it.
    """
    root = Path(tempfile.gettempdir()) / f"infinity-pool-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    seen = root.lstat()
    if not root.is_dir() or root.is_symlink() or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
        raise InvalidInput(f"{root} must be a folder of this user alone", param="device_share")
    folder = root / physical(device).replace(os.sep, "-").replace(":", "-")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def physical(device: str) -> str:
    """Give what a device is on this machine: one GPU has several names, and other numbers by CUDA_VISIBLE_DEVICES."""
    if kind_of(device) not in _ON_CUDA:
        return device
    number = int(device.partition(":")[2] or 0)
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return f"cuda:{visible[number] if number < len(visible) else number}"
