"""The policies that a checkpoint ran with, stored in it, so that no decision changes afterwards.

A batch that Spark replays after a policy change gives the same result: up to the watermark at the
change the limits are the same, and a window keeps the version that was in force when the watermark
reached its end.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.exposure.errors import PolicyError
from holdfast.spark_app.exposure.policy import Policy, VersionPeriod, require_unchanged, same
from holdfast.spark_app.exposure.schema import NEVER

FILE: Final = "holdfast-policy.json"
VERSION: Final = 1


@dataclass(frozen=True)
class PolicyHistory:
    """Policies in their order, each with its first watermark; the last is in force."""

    policies: tuple[Policy, ...]
    since_us: tuple[int | None, ...]
    """The planned watermark (microseconds) when each became the policy; None for the first."""

    @classmethod
    def begin(cls, policy: Policy) -> Self:
        """Return the history of a checkpoint without a batch."""
        return cls((policy,), (None,))

    def followed_by(self, policy: Policy, watermark_us: int) -> Self:
        """Return the history with the policy of this start; itself where that is the last one.

        `watermark_us` is the time up to which windows are decided, 0 before any is. Raises
        CommandError for a policy that changes a past decision, or that has the version of another
        one.
        """
        last = self.policies[-1]
        if same(last.file, policy.file):
            return self
        try:
            self._require_own_version(policy)
            require_unchanged(last.file, policy.file, watermark_us or None)
        except PolicyError as error:
            raise CommandError(
                f"{error} Nothing was read or written.", code="policy_change_refused"
            ) from error
        return type(self)((*self.policies, policy), (*self.since_us, watermark_us))

    @property
    def reached_us(self) -> int:
        """The watermark from which the last policy is in force; 0 for the first one."""
        return max(filter(None, self.since_us), default=0)

    @property
    def policy(self) -> Policy:
        """The policy in force, with its predecessors."""
        moments = (NEVER if since is None else since for since in self.since_us)
        versions = (policy.version for policy in self.policies)
        return self.policies[-1].after([*map(VersionPeriod, moments, versions)])

    def to_json(self) -> str:
        """Return the text of `FILE`."""
        kept = [
            {"version": policy.version, "since_us": since, "toml": policy.text}
            for policy, since in zip(self.policies, self.since_us, strict=True)
        ]
        return json.dumps({"version": VERSION, "policies": kept}, indent=2) + "\n"

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote; else raises KeyError, TypeError or ValueError."""
        policies = kept["policies"]
        if not policies:
            raise ValueError("a history without a policy")
        return cls(
            tuple(Policy.parse(each["toml"]) for each in policies),
            tuple(each["since_us"] for each in policies),
        )

    def _require_own_version(self, policy: Policy) -> None:
        for earlier in self.policies:
            if earlier.version == policy.version and not same(earlier.file, policy.file):
                raise PolicyError(
                    f"The policy's content has changed, and its version is {policy.version} as"
                    " before: decisions that name this version were made by the other content."
                    " Give it a version of its own."
                )
