"""What an engine raises when the device, and not the item, is at fault."""


class OutOfMemory(Exception):
    """The device has no room for a batch of this size; a smaller one may do."""


class DeviceLost(Exception):
    """The device will run nothing more in this process, as after an illegal access; only a new process helps."""
