"""Searches with a state machine for as long as it is told, and reports what it tried.

`make test-rest` gives each machine 20 seconds and the same seeds every time. `make model-sql` gives
each an hour and other seeds, and prints the first: a run with it finds the same.
"""

import os
import secrets
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

SECONDS = "HOLDFAST_TEST_MODEL_SECONDS"
"""The variable with how long each machine searches."""

SEED = "HOLDFAST_TEST_MODEL_SEED"
"""The variable with the first seed."""

SECONDS_DEFAULT = 10.0

EXAMPLES = 10
"""Of each seed. The time is looked at in between."""


@dataclass
class Effort:
    """What a search tried."""

    examples: int = 0
    seconds: float = 0.0
    first_seed: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    """By what happened, so that a rule that never does anything is noticed."""

    def __str__(self) -> str:
        total = self.steps.total()
        each = ", ".join(f"{name} {count:,}" for name, count in sorted(self.steps.items()))
        return (
            f"{self.examples:,} examples, {total:,} steps in {self.seconds:.0f} s"
            f" ({total / (self.seconds or 1):.0f} a second), first seed {self.first_seed}: {each}"
        )


def search(
    machine: type[RuleBasedStateMachine],
    effort: Effort,
    *,
    steps: int = 50,
    seconds: float | None = None,
) -> Effort:
    """Run examples of up to `steps` steps until the time is over; raises what an example raises.

    What fails is shrunk, and the script that fails is printed with the error. With `seconds` the
    search is as long and the same each time, whatever the environment says.
    """
    in_environment = None if seconds is not None else os.environ.get(SECONDS)
    limit = float(in_environment or seconds or SECONDS_DEFAULT)
    drawn = secrets.randbelow(10**9) if in_environment else 0
    effort.first_seed = int(os.environ.get(SEED, drawn))
    began = monotonic()
    seed = effort.first_seed
    while effort.seconds < limit:
        run_state_machine_as_test(
            hypothesis.seed(seed)(machine),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=steps,
                database=None,
                deadline=None,
                phases=(Phase.generate, Phase.shrink),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
        effort.seconds = monotonic() - began
        seed += 1
    return effort
