"""What a checkpoint says besides the state: what it was begun with, and a batch's watermark."""

import json
from dataclasses import dataclass

from pyspark.sql import SparkSession

from sink.contract.exits import CommandError, ExitCode
from spark_app.checkpoint.files import CheckpointFiles
from spark_app.checkpoint.shape import FILE, VERSION
from spark_app.exposure.settings import MILLISECOND_US, Settings
from spark_app.operator.groups import group_numbers


@dataclass(frozen=True, slots=True)
class Begun:
    """What the checkpoint was begun with."""

    stream: str
    key_groups: tuple[int, ...]
    """Their numbers."""
    settings: Settings


class Journal:
    """The small files of a checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._files = CheckpointFiles(spark, checkpoint)

    def begun(self) -> Begun:
        """Read what the job wrote down at its start; raises CommandError where no job did."""
        kept = self._files.read_json(FILE, VERSION)
        if kept is None:
            raise no_checkpoint(self._checkpoint)
        try:
            settings = Settings(**{name: kept[name] for name in Settings.__dataclass_fields__})
            groups = group_numbers(kept["key_groups"], kept["partitions"])
            return Begun(kept["stream"], groups, settings)
        except (KeyError, TypeError, ValueError) as error:
            raise CommandError(
                f"{FILE} in {self._checkpoint} does not say all that it has to ({error})."
                " Nothing was changed; restore the file."
            ) from error

    def watermark_us(self, batch: int) -> int | None:
        """Return the watermark with which a batch ran, in microseconds; None: there was none."""
        text = self._files.read(f"offsets/{batch}")
        try:
            planned = json.loads((text or "").splitlines()[1])
            return int(planned["batchWatermarkMs"]) * MILLISECOND_US or None
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CommandError(
                f"the plan of batch {batch} (offsets/{batch}) is not in {self._checkpoint}, or"
                " cannot be read. Nothing was changed; if the job is running, the batch may just"
                " have left: ask for a newer one."
            ) from error


def no_checkpoint(checkpoint: str) -> CommandError:
    """Make the error of a directory that the exposure job did not begin."""
    return CommandError(
        f"{checkpoint} is not a checkpoint of the exposure job: there is no {FILE} in it. Nothing"
        " was read; name with --checkpoint what `job run` was given.",
        ExitCode.USAGE,
    )
