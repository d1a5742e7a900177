"""Amounts as Kubernetes writes them: `500m` of a processor, `512Mi` of memory."""

import re
from decimal import Decimal

_FORM = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")

UNITS: dict[str | None, Decimal] = {
    None: Decimal(1),
    "m": Decimal(1) / 1000,
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGT", 1)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGT", 1)},
}


def amount(text: str | float) -> Decimal:
    """Return an amount in whole processors or bytes.

    Raises `ValueError` for another form.

    >>> amount("500m"), amount("1Ki")
    (Decimal('0.500'), Decimal('1024'))
    """
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text} is no amount")
    return Decimal(match[1]) * UNITS[match[2]]
