"""Random kills of a running job, the same for the same seed, until the job is done all the same.

A kill waits for a condition, never for a time: the driver stands at a failpoint of the sink, a file
of the checkpoint appears, a worker is at work on the state. In production a service manager starts
the job again when it has ended; here `Assault.run` does, and does not wait until the JVM of the one
before is gone.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil
import psycopg

from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.job.job_process import SECONDS, Family, family, in_the_step, kill_if
from tests.support.job.job_stream import OPTIONS, Rows, Stream, outcome, published, required, stream
from tests.support.waiting import eventually

FAILPOINTS = [f"S{n}" for n in range(1, 10)]
PARTITIONS = 2
_REST_SECONDS = 600
"""How long the stream may take after the last kill, on a busy machine."""


class Victim(StrEnum):
    """Whom a kill is meant for."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"


class Moment(StrEnum):
    """When a kill happens that no failpoint announces."""

    PLANNED = "planned"
    """Spark has written down which files the batch has."""
    STEP = "step"
    """A worker has the state open."""
    STATE = "state"
    """One partition has written its state, the other perhaps not."""
    RECORDED = "recorded"
    """Spark has recorded the batch."""


@dataclass(frozen=True)
class Kill:
    """One planned SIGKILL, so many batches after the one before; 0 is the same batch again."""

    victim: Victim
    at: str
    """A failpoint, at which the driver is stopped for it, or a `Moment`."""
    after: int
    partition: int
    twin: bool = False
    """The JVM of the killed driver is frozen, and goes on beside its successor."""

    @property
    def announced(self) -> bool:
        return self.at in FAILPOINTS


@dataclass(frozen=True)
class Done:
    """A kill that happened, in which batch, in which process, and whether the query felt it."""

    kill: Kill
    batch: int
    process: int
    interrupted: bool


def plan(seed: int, each: int) -> list[Kill]:
    """Draw `each` drivers, as many JVMs and twice as many workers; half of them at failpoints.

    2 to 5 of each; five make twenty kills.
    """
    draw = random.Random(seed)  # noqa: S311 - a plan, not a secret
    points = draw.sample(FAILPOINTS, 2 * each - 1) + draw.sample(FAILPOINTS, 1)
    where: list[tuple[Victim, str, bool]] = []
    for victim in (Victim.DRIVER, Victim.JVM):
        places = [points.pop() for _ in range(each - 1)] + [draw.choice(list(Moment))]
        twins = set(draw.sample(range(each), each // 2)) if victim is Victim.DRIVER else set()
        where += [(victim, at, number in twins) for number, at in enumerate(places)]
    # While the driver stands, no task runs: what dies there is a worker that waits for work.
    steps = draw.choices([Moment.STEP, Moment.STEP, Moment.STATE, Moment.PLANNED], k=2)
    workers = [points.pop(), points.pop(), *steps, *[Moment.STEP] * (2 * each - 4)]
    where += [(Victim.WORKER, at, False) for at in workers]
    draw.shuffle(where)
    return [
        Kill(victim, at, draw.choice([0, 1, 1, 1, 2]), draw.randrange(PARTITIONS), twin)
        for victim, at, twin in where
    ]


@dataclass
class Assault:
    """A run of the job over the files of a folder that does not go well."""

    folder: Path
    dsn: str
    kills: list[Kill]
    options: tuple[str, ...]
    names: Callable[[str], Iterable[str]] | None = None
    """The names of the files in a folder of the checkpoint, where it is on no local disk."""
    done: list[Done] = field(default_factory=list)
    families: list[Family] = field(default_factory=list)
    _frozen: list[tuple[psutil.Process, int]] = field(default_factory=list)
    """JVMs without a driver, and the last batch before it died."""

    def run(self) -> None:
        """Start the job until it has done everything, and kill as planned; all has ended then.

        Fails when the stream is done before all kills, when a job ends that nobody killed, or
        when something that was not killed itself does not end with what was.
        """
        with ExitStack() as stack:
            self._db = stack.enter_context(psycopg.connect(self.dsn, autocommit=True))
            while not self._live(stack):
                pass
            self._thaw(at_once=True)
            for each in self.families:
                eventually(lambda each=each: not each.left(), SECONDS)

    def _live(self, stack: ExitStack) -> bool:
        """Start one process and see it to its end; whether it was done."""
        before, begun = len(self.done), self._epoch()
        arming = self._arming()
        job = stack.enter_context(
            family(
                self.folder,
                self.dsn,
                *self.options,
                log=f"process-{len(self.families)}.txt",
                environment=arming,
            )
        )
        self.families.append(job)
        # It may stand at a point of its first batch, before that has claimed the stream.
        eventually(lambda: job.ended or job.stands or self._epoch() > begun, SECONDS)
        while self._next(job):
            pass
        if job.process.returncode == 0:
            assert not self.kills, f"the stream is too short: {self.kills} were left"
            return True
        assert len(self.done) > before, job.said
        return False

    def _arming(self) -> dict[str, str]:
        """Make the driver stop for the next kills, up to that of itself.

        A batch that is replayed passes some points twice, so the kills may change their order.
        """
        specs: dict[str, str] = {}
        turn = 0
        for kill in self.kills:
            if kill.announced:
                if kill.at in specs:
                    break
                turn += max(1, kill.after)
                specs[kill.at] = f"{kill.at}=stop@{turn}"
                if kill.victim is Victim.DRIVER:
                    break
        return {ENVIRONMENT: ";".join(specs.values())}

    def _next(self, job: Family) -> bool:
        """Wait for the next kill and do it; False when the job has ended."""
        announced = next((kill for kill in self.kills if kill.announced), None)
        free = next((kill for kill in self.kills if not kill.announced), None)
        reached = max(self._newest("commits"), self.done[-1].batch if self.done else -1)
        first = reached + (free.after if free else 0)
        struck: list[tuple[Kill, int]] = []

        def strike(kill: Kill) -> None:
            epoch = self._epoch()
            if self._strike(job, kill):
                struck.append((kill, epoch))

        def met() -> bool:
            self._thaw()
            if announced and job.stands:
                strike(announced)
                job.resume()
            elif free and not job.ended and self._due(job, free, first):
                strike(free)
            return bool(struck) or job.ended

        eventually(met, SECONDS if self.kills else _REST_SECONDS)
        for kill, epoch in struck:
            self.kills.remove(kill)
            self._settle(job, kill, epoch)
        return not job.ended

    def _due(self, job: Family, kill: Kill, first: int) -> bool:
        batch = self._newest("offsets")
        recorded = self._newest("commits")
        match kill.at:
            case Moment.RECORDED:
                return recorded >= first
            case Moment.PLANNED:
                return batch >= first and batch > recorded
            case Moment.STATE:
                names = self._names(f"state/0/{kill.partition}")
                return batch >= first and any(name.startswith(f"{batch + 1}_") for name in names)
            case _:
                return batch >= first and any(map(in_the_step, job.workers()))

    def _strike(self, job: Family, kill: Kill) -> bool:
        """Kill whom it is meant for; False when nobody of the kind is there."""
        match kill.victim:
            case Victim.DRIVER:
                jvm = job.jvm()
                if kill.twin and jvm:
                    jvm.suspend()
                    self._frozen.append((jvm, self._newest("commits")))
                job.process.kill()
                job.process.wait(SECONDS)
                return True
            case Victim.JVM:
                victims = [jvm for jvm in [job.jvm()] if jvm]
            case Victim.WORKER:
                victims = job.workers()
        in_time = in_the_step if kill.at == Moment.STEP and kill.victim is Victim.WORKER else _any
        turned = victims[kill.partition :] + victims[: kill.partition]
        return any(kill_if(victim, in_time) for victim in turned)

    def _settle(self, job: Family, kill: Kill, epoch: int) -> None:
        """Wait until the query has started again, or goes on as if nothing had happened."""
        batch, recorded = self._newest("offsets"), self._newest("commits")

        def settled() -> bool:
            self._thaw()
            if job.ended or job.stands or self._epoch() > epoch:
                # One that stands waits for the next kill.
                return True
            return self._newest("commits") > recorded + 1

        eventually(settled, SECONDS)
        interrupted = job.process.poll() not in {0, None} or self._epoch() > epoch
        self.done.append(Done(kill, batch, len(self.families) - 1, interrupted))

    def _thaw(self, *, at_once: bool = False) -> None:
        """Let frozen JVMs go on as soon as a successor has recorded a batch."""
        recorded = self._newest("commits")
        for jvm, before in list(self._frozen):
            if at_once or recorded > before + 1:
                with suppress(psutil.NoSuchProcess):
                    jvm.resume()
                self._frozen.remove((jvm, before))

    def _newest(self, log: str) -> int:
        return max((int(name) for name in self._names(log) if name.isdigit()), default=-1)

    def _names(self, folder: str) -> Iterable[str]:
        if self.names is not None:
            return self.names(folder)
        return [path.name for path in (self.folder / "checkpoint" / folder).glob("[0-9]*")]

    def _epoch(self) -> int:
        """How often the query has started."""
        row = self._db.execute("SELECT coalesce(max(epoch), 0) FROM holdfast.stream").fetchone()
        assert row
        return int(row[0])


def _any(_: psutil.Process) -> bool:
    return True


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


def play(
    seed: int,
    folder: Path,
    peace_dsn: str,
    attack_dsn: str,
    each: int = KILLS_EACH,
    *,
    files: int = FILES_FOR_EACH,
    options: tuple[str, ...] = (),
    names: Callable[[str], Iterable[str]] | None = None,
) -> Round:
    """Run the job over the stream of a seed into two databases, the second time under attack.

    The stream has `files` for each driver that is killed. With `options`, and the `names` of its
    files, the attacked one has its checkpoint elsewhere.
    """
    made = stream(seed, files * each)
    for name in ("peace", "attack"):
        (folder / name).mkdir()
        made.put(folder / name / "events")
    peace = folder / "peace"
    with family(peace, peace_dsn, *RUN, log="job.txt", environment={}) as job:
        assert job.process.wait(_SECONDS) == 0, job.said
    attack = Assault(folder / "attack", attack_dsn, plan(seed, each), (*RUN, *options), names)
    attack.run()
    return Round(
        made,
        folder / "policy.toml",
        outcome(peace_dsn),
        outcome(attack_dsn),
        published(attack_dsn),
        attack.done,
    )
