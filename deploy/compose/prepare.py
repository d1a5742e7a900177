"""`python -m holdfast.deploy.compose.prepare`: make the secrets of the stack, once.

Each is a file, which Docker mounts into the containers that name it. A login's file is a service
file of libpq, so no password is in an environment or in a command. The folder is for its owner
alone; the files can be read by all, because a container's user is another one.
"""

import argparse
import secrets
import shutil
import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

FOLDER = Path(__file__).with_name("secrets")

LOGINS: Mapping[str, str] = {
    "api": "holdfast",
    "dispatcher": "holdfast",
    "job": "holdfast",
    "payouts": "payouts",
}
"""The database of each login."""

OWNER = "postgres"

_SERVICE = """\
[{name}]
host=postgres
port=5432
dbname={database}
user={user}
password={password}
"""


def contents() -> dict[str, str]:
    """Return new secrets by the names of their files."""
    passwords = {name: secrets.token_urlsafe(32) for name in (*LOGINS, OWNER)}
    logins = [f"CREATE ROLE {name} LOGIN PASSWORD '{passwords[name]}';" for name in LOGINS]
    services = {
        f"{name}.conf": _service(name, database, name, passwords[name])
        for name, database in LOGINS.items()
    }
    return services | {
        "migrate.conf": _service("migrate", "holdfast", OWNER, passwords[OWNER]),
        "postgres-password": passwords[OWNER],
        "grafana-password": secrets.token_urlsafe(32),
        "payouts-signing": f"whsec_{b64encode(secrets.token_bytes(32)).decode()}",
        "logins.sql": "\n".join([*logins, "CREATE DATABASE payouts OWNER payouts;", ""]),
    }


def _service(name: str, database: str, user: str, password: str) -> str:
    return _SERVICE.format(name=name, database=database, user=user, password=password)


def prepare(folder: Path) -> bool:
    """Make the folder with all secrets; False if it is there, and nothing is changed."""
    if folder.exists():
        return False
    draft = Path(mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        for name, content in contents().items():
            (draft / name).write_text(content)
            (draft / name).chmod(0o444)
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return True


def main() -> None:
    """Make them, or say that they are there."""
    parser = argparse.ArgumentParser(description="Make the secrets of deploy/compose/compose.yml.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where compose.yml has them")
    folder = parser.parse_args().folder
    written = prepare(folder)
    sys.stdout.write(
        f"{folder}: {'made' if written else 'they are there, and nothing is changed'}\n"
    )


if __name__ == "__main__":
    main()
