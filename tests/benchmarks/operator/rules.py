"""The settings of all cases: the job's default times and one policy."""

from typing import Final

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import SECOND_US, Settings

SETTINGS: Final = Settings()

WINDOW_S: Final = SETTINGS.window_us // SECOND_US
DELAY_S: Final = SETTINGS.watermark_delay_us // SECOND_US
CUTOFF_S: Final = SETTINGS.late_cutoff_us // SECOND_US

POLICY_TEXT: Final = """
version = "bench"
[[default]]
limit_minor = 20_000_000
release_level_minor = 5_000_000
"""


def policy() -> Policy:
    return Policy.parse(POLICY_TEXT)
