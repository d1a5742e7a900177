"""Key groups: merchants spread over a fixed number of parts of the state."""

import zlib

KEY_GROUPS = 32
"""Unless the job says otherwise. Each group with rows costs a batch one read and one write of its
state and one step; more groups make each of them smaller, and let more tasks share them."""

STATE_PARTITIONS = 2
"""Unless the job says otherwise: tasks among which the groups are shared, one per core is best."""


def key_group(merchant_id: str, groups: int) -> int:
    """Return a merchant's key group: the same for ever, in every process and on every machine."""
    return zlib.crc32(merchant_id.encode()) % groups
