"""One stream through the job twice: in peace, and under random kills."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.job.job_family import family
from tests.support.job.job_kills import Assault, Done, plan
from tests.support.job.job_outcome import Rows, outcome, published, required
from tests.support.job.job_stream import OPTIONS, Stream, stream

KILLS_EACH = 5
FILES_FOR_EACH = 9
"""So many files of events for each driver that is killed, and for the others that come with it."""

RUN = ("--available-now", *OPTIONS)
_SECONDS = 600


@dataclass(frozen=True)
class Round:
    """What both runs left, and what was killed in the second."""

    stream: Stream
    policy: Path
    peaceful: dict[str, Rows]
    attacked: dict[str, Rows]
    published: tuple[Rows, Rows, Counter[tuple[object, ...]]]
    done: list[Done]

    @property
    def required(self) -> tuple[Rows, Rows, Counter[tuple[object, ...]]]:
        """What the rules ask for, to be compared with `published`."""
        return required(self.stream.expected(self.policy))


def play(seed: int, folder: Path, peace_dsn: str, attack_dsn: str, each: int = KILLS_EACH) -> Round:
    """Run the job over the stream of a seed into two databases, the second time under attack."""
    made = stream(seed, FILES_FOR_EACH * each)
    for name in ("peace", "attack"):
        (folder / name).mkdir()
        made.put(folder / name / "events")
    peace = folder / "peace"
    with family(peace, peace_dsn, *RUN, log="job.txt", environment={}) as job:
        assert job.driver.wait(_SECONDS) == 0, job.said
    attack = Assault(folder / "attack", attack_dsn, plan(seed, each), RUN)
    attack.run()
    return Round(
        made,
        folder / "policy.toml",
        outcome(peace_dsn),
        outcome(attack_dsn),
        published(attack_dsn),
        attack.done,
    )
