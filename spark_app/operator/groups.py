"""Key groups: merchants are hashed into a fixed number of groups."""

import zlib
from collections.abc import Sequence
from functools import cache
from itertools import count

GROUPS_PER_PARTITION = 4
"""Default. Each group with rows costs a batch one step and a few calls into the JVM; with more
groups each is smaller, and a later start from a savepoint can spread them over more partitions."""

STATE_PARTITIONS = 2
"""Default number of tasks that share the groups; one per core is best."""

_SPARK_SEED = 42
_WORD = 0xFFFF_FFFF


@cache
def group_numbers(groups: int, partitions: int) -> tuple[int, ...]:
    """Return the grouping keys of the groups in Spark: always the same for equal arguments.

    Spark assigns a key to a partition by its hash. Of the numbers 0 to 31, two partitions would get
    12 and 20, and every batch would wait for the larger one; these are distributed evenly.
    """
    numbers: list[int] = []
    free: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    candidates = count()
    for group in range(groups):
        mine = free[group % partitions]
        while not mine:
            number = next(candidates)
            free[spark_hash(number) % partitions].append(number)
        numbers.append(mine.pop(0))
    return tuple(numbers)


def key_group(merchant_id: str, numbers: Sequence[int]) -> int:
    """Return the number of a merchant's key group: the same in every process and on every machine.

    `numbers` are those of `group_numbers`.
    """
    return numbers[zlib.crc32(merchant_id.encode()) % len(numbers)]


def spark_hash(number: int) -> int:
    """Return Spark's `hash` of an int column (Murmur3, x86, 32 bits, of one word), signed.

    Source: org.apache.spark.unsafe.hash.Murmur3_x86_32.hashInt.
    """
    word = _rotate(number * 0xCC9E_2D51 & _WORD, 15) * 0x1B87_3593 & _WORD
    mixed = (_rotate(_SPARK_SEED ^ word, 13) * 5 + 0xE654_6B64) & _WORD
    mixed ^= 4  # the length of the input in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EB_CA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2_AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD
