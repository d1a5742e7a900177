"""The output of the demo while it runs: a live panel on a terminal, else plain lines."""

import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

FRAME_LINES = 8
"""Terminal lines for the frame, the numbers and the prompt."""

CLOCK_WIDTH = 12
"""Terminal columns for the frame and the clock."""

SENTENCES_MAX = 40
PLAIN_SECONDS = 10.0
"""Interval of the numbers in plain output."""


@dataclass(frozen=True)
class Progress:
    """The counts at one moment."""

    batches: int = 0
    batches_in_all: int = 0
    entries: int = 0
    delivered: int = 0
    held: int = 0
    spark_kills: int = 0
    dispatcher_kills: int = 0


class View(Protocol):
    """The output of the demo."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def say(self, sentence: str) -> None:
        """Report an event."""

    def show(self, progress: Progress) -> None:
        """Show the current counts."""


def view(console: Console) -> View:
    """Return the view for this output."""
    redraws = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console) if redraws else PlainView(console)


class PlainView:
    """Prints one line per event, and the counts every `PLAIN_SECONDS`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._shown = time.monotonic()
        self._progress = Progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def say(self, sentence: str) -> None:
        line = f"[{_clock(self._started)}] {sentence}"
        self._console.print(line, markup=False, soft_wrap=True)

    def show(self, progress: Progress) -> None:
        if progress != self._progress and time.monotonic() - self._shown >= PLAIN_SECONDS:
            self._shown, self._progress = time.monotonic(), progress
            self.say(
                f"{progress.batches} of {progress.batches_in_all} batches,"
                f" {progress.entries} entries, {progress.delivered} delivered,"
                f" {progress.held} merchants held now"
            )


class LiveView:
    """A panel that is redrawn."""

    def __init__(self, console: Console) -> None:
        self._started = time.monotonic()
        self._console = console
        self._said: deque[tuple[str, str]] = deque(maxlen=SENTENCES_MAX)
        self._progress = Progress()
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._render)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, sentence: str) -> None:
        self._said.append((_clock(self._started), sentence))

    def show(self, progress: Progress) -> None:
        self._progress = progress

    def _render(self) -> RenderableType:
        now = self._progress
        numbers = Table.grid(padding=(0, 3))
        numbers.add_row(
            _number("batches", f"{now.batches}/{now.batches_in_all}"),
            _number("entries", str(now.entries)),
            _number("delivered", str(now.delivered)),
            _number("held now", str(now.held)),
            _number("Spark killed", str(now.spark_kills), "red"),
            _number("dispatcher killed", str(now.dispatcher_kills), "red"),
        )
        bar = ProgressBar(total=max(now.batches_in_all, 1), completed=now.batches)
        return Panel(
            Group(numbers, bar, Text(), self._newest()),
            title=f"Holdfast demo  {_clock(self._started)}",
            subtitle="Ctrl-C stops everything",
        )

    def _newest(self) -> Table:
        """Return the newest sentences that fit on the terminal."""
        width = max(self._console.width - CLOCK_WIDTH, 1)
        room = self._console.height - FRAME_LINES
        shown: list[tuple[str, str]] = []
        for clock, sentence in reversed(self._said):
            room -= -(-len(sentence) // width) + (len(sentence) > width)
            if room < 0 and shown:
                break
            shown.append((clock, sentence))
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column()
        for clock, sentence in reversed(shown):
            table.add_row(Text(clock), Text(sentence))
        return table


def _number(name: str, value: str, style: str = "cyan") -> Text:
    return Text.assemble((value, f"bold {style}"), f" {name}")


def _clock(started: float) -> str:
    return f"{time.monotonic() - started:4.0f} s"
