"""The exposure job under the random kills of one seed: `python -m tests.soak.job SEED`.

Needs a server on which it may create databases: HOLDFAST_TEST_DSN, or it starts one. What a round
left that went wrong (checkpoint, events, logs) stays in .holdfast/soak.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.migrations.upgrade import upgrade
from tests.support.job.job_kills import play
from tests.support.servers.databases import copy_of

FOLDER = Path(".holdfast/soak")


def main(seed: int) -> int:
    """Play one round; returns 0 when the kills changed nothing."""
    folder = (FOLDER / f"job-{seed}").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _server(folder) as server, ExitStack() as databases:
        peace, attack = (databases.enter_context(copy_of(server, "template1")) for _ in range(2))
        for dsn in (peace, attack):
            upgrade(dsn)
        played = play(seed, folder, peace, attack)
    differing = [name for name, rows in played.peaceful.items() if rows != played.attacked[name]]
    if played.published != played.required:
        differing.append("the rules")
    if differing:
        print(f"seed {seed}: kills changed {', '.join(differing)}; see {folder}")
        return 1
    shutil.rmtree(folder)
    interrupted = sum(each.interrupted for each in played.done)
    print(f"seed {seed}: {len(played.done)} kills, {interrupted} restarts, no row other")
    return 0


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    dsn = os.environ.get("HOLDFAST_TEST_DSN")
    if dsn:
        yield dsn
        return
    with EmbeddedPostgres(folder / "postgres", keep=False) as server:
        yield server.dsn


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
