"""An expand and a contract revision above the newest, as a next release would have them.

Expand adds a column for who wrote a row; the next version fills it. Contract demands it, so the
version before, which does not know the column, could not write any more.
"""

from pathlib import Path
from typing import NamedTuple

TABLES = ("batch", "dispatcher_instance")

_EXPAND = '''"""Step: expand."""

from alembic import op

revision = "{expand}"
down_revision = "{head}"


def upgrade() -> None:
    op.execute("ALTER TABLE holdfast.batch ADD COLUMN writer text")
    op.execute("ALTER TABLE holdfast.dispatcher_instance ADD COLUMN writer text")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.dispatcher_instance DROP COLUMN writer")
    op.execute("ALTER TABLE holdfast.batch DROP COLUMN writer")
'''

_CONTRACT = '''"""Step: contract."""

from alembic import op

revision = "{contract}"
down_revision = "{expand}"
serves_from = "{expand}"


def upgrade() -> None:
    op.execute("UPDATE holdfast.batch SET writer = 'before' WHERE writer IS NULL")
    op.execute("UPDATE holdfast.dispatcher_instance SET writer = 'before' WHERE writer IS NULL")
    op.execute("ALTER TABLE holdfast.batch ALTER COLUMN writer SET NOT NULL")
    op.execute("ALTER TABLE holdfast.dispatcher_instance ALTER COLUMN writer SET NOT NULL")
    op.execute(f"UPDATE holdfast.alembic_version SET serves_from = '{{serves_from}}'")


def downgrade() -> None:
    op.execute("UPDATE holdfast.alembic_version SET serves_from = '{served}'")
    op.execute("ALTER TABLE holdfast.dispatcher_instance ALTER COLUMN writer DROP NOT NULL")
    op.execute("ALTER TABLE holdfast.batch ALTER COLUMN writer DROP NOT NULL")
'''


class Pair(NamedTuple):
    """The revisions that were written."""

    expand: str
    contract: str


def write_pair(folder: Path, head: str, served: str = "0032") -> Pair:
    """Write both revisions above `head` into `folder`; `served` is the oldest code before them."""
    pair = Pair(f"{int(head) + 1:04}", f"{int(head) + 2:04}")
    for name, text in (("expand_writer", _EXPAND), ("contract_writer", _CONTRACT)):
        number = pair.expand if name.startswith("expand") else pair.contract
        content = text.format(head=head, served=served, **pair._asdict())
        (folder / f"{number}_{name}.py").write_text(content)
    return pair
