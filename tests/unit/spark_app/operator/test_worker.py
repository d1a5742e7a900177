import subprocess
import sys

import pytest

PROGRAM = """
import gc
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.operator.pack import Packer
from holdfast.spark_app.operator.processor import KeyGroupProcessor

policy = Policy.parse('version = "1"\\n[[default]]\\nlimit_minor = 1\\nrelease_level_minor = 1\\n')
{task}
print(len(gc.get_objects()))
"""

TASKS = {
    "pack": "list(Packer(None, policy, 0, (1, 2))(iter(())))",
    "step": "KeyGroupProcessor(policy, Settings()).close()",
}

LEFT = 1_000
"""More than a task leaves, and far less than the tens of thousands that imports make."""


@pytest.mark.parametrize("task", TASKS)
def test_collection_after_a_task_looks_at_no_imported_object(task: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(task=TASKS[task])]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert int(done.stdout) < LEFT
