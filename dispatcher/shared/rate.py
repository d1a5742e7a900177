"""The rate of an endpoint that is sustained, from the rate that an operator allows. Pure."""

BEGIN_SECONDS = 0.1
"""How long after its claim came back a paced entry may be begun; then it is given back: what was
claimed and not begun cannot pile up behind a slow receiver. Not from the beginning of the claim:
nothing would be begun while claims take longer."""

BUCKET_SECONDS = 0.05
"""How long an idle endpoint gathers what may then be claimed at once; one entry in any case."""


def sustained(rate_per_second: int) -> float:
    """Return the entries a second that are claimed where so many may be begun in any second.

    Within a second as many are begun as were claimed in it and in `BEGIN_SECONDS` before it, and a
    bucket that was full: of a lower rate these are together what the operator allows.

    >>> sustained(115)
    100.0
    """
    return rate_per_second / (1 + BEGIN_SECONDS + BUCKET_SECONDS)
