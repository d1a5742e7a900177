"""The dispatcher's settings: validated once, immutable, shown without secrets."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.dispatcher.outbound.reference_rule import ReferenceRule
from holdfast.dispatcher.outbound.transport.transport import ENGINES, EngineName
from holdfast.sink.contract.numbers import is_whole

LEASE_SECONDS_MAX = 600


def address(listen: str) -> tuple[str, int]:
    """Split HOST:PORT, with an IPv6 host in brackets. Raises `ValueError` for anything else."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not is_whole(port) or int(port) > 65535:
        raise ValueError(f"--listen must be HOST:PORT, such as 127.0.0.1:9464, not {listen!r}")
    return host, int(port)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `holdfast dispatch`. Raises `ValueError` for invalid values."""

    dsn: str = field(repr=False)
    drain: bool = False
    concurrency: int = 256
    """Maximum number of concurrent requests of this process, over all endpoints."""
    claim_lanes: int = 256
    """Maximum number of lanes that one claim takes."""
    entries_per_lane: int = 8
    """Maximum number of entries of a lane that one claim takes."""
    lease_seconds: float | None = None
    """None: as long as the slowest endpoint needs (`holdfast.dispatcher.delivery.rules.lease`)."""
    stop_seconds: float = 20.0
    """Time limit for requests in flight after the first SIGTERM."""
    retain_days: int | None = None
    """Partitions whose rows are all older are dropped once a day; None: none is dropped."""
    ca_file: Path | None = None
    """Additional certificate authorities for receivers, as PEM."""
    engine: EngineName = "auto"
    """The HTTP engine (`holdfast.dispatcher.outbound.transport.engines`)."""
    doorbell: bool = True
    """Whether to listen for notifications of new batches; polling is then less frequent."""
    listen: str | None = None
    """HOST:PORT of health and metrics; None serves neither."""
    references: ReferenceRule = field(default_factory=ReferenceRule)
    """Which references of endpoints this process resolves."""

    def __post_init__(self) -> None:
        """Check every value."""
        for name, value, maximum in (
            ("concurrency", self.concurrency, 4096),
            ("claim lanes", self.claim_lanes, 4096),
            ("entries per lane", self.entries_per_lane, 256),
        ):
            if not 1 <= value <= maximum:
                raise ValueError(f"{name} must be 1 to {maximum}, not {value}")
        if self.engine not in ENGINES:
            raise ValueError(f"the engine must be one of {', '.join(ENGINES)}, not {self.engine!r}")
        if self.listen is not None:
            address(self.listen)
        if self.drain and self.retain_days is not None:
            raise ValueError(
                "a drain may end before old days are dropped: leave out --retain and run"
                " `holdfast db prune`"
            )
        lease = self.lease_seconds
        if lease is not None and not (math.isfinite(lease) and 2 <= lease <= LEASE_SECONDS_MAX):
            raise ValueError(f"the lease must be 2 to {LEASE_SECONDS_MAX} seconds, not {lease:g}")
        if not 0 <= self.stop_seconds <= LEASE_SECONDS_MAX:
            raise ValueError(
                f"the time to stop must be 0 to {LEASE_SECONDS_MAX} seconds,"
                f" not {self.stop_seconds:g}"
            )
