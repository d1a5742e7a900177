"""The sustained rate of an endpoint, from the rate that an operator allows. Pure."""

BEGIN_SECONDS = 0.1
"""How long after the end of its claim an entry under a rate limit may be started. Later it is
released, so that claimed entries do not pile up behind a slow receiver. Measured from the end of
the claim: otherwise nothing would be started while claims take longer."""

BUCKET_SECONDS = 0.05
"""Size of the token bucket, in seconds of the rate; at least one entry."""


def sustained(rate_per_second: int) -> float:
    """Return the entries a second to claim so that no second starts more than `rate_per_second`.

    The entries started within a second were claimed in it or up to `BEGIN_SECONDS` before it, or
    come from a full bucket: the lower rate keeps their sum within the operator's limit.

    >>> sustained(115)
    100.0
    """
    return rate_per_second / (1 + BEGIN_SECONDS + BUCKET_SECONDS)
