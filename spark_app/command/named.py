"""A directory that a command line has to name."""

from sink.contract.exits import CommandError, ExitCode


def require_named(checkpoint: str, done: str) -> None:
    """Raise CommandError (usage) for an empty `--checkpoint`; nothing was `done` so far."""
    if not checkpoint:
        raise CommandError(
            f"--checkpoint '' names no directory. Nothing was {done}; it names the directory in"
            " which Spark keeps its position and state.",
            ExitCode.USAGE,
        )
