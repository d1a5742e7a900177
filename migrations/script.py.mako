"""${message.partition(" ")[2]}.

Step: expand (the previous version of Holdfast works on this schema) or contract (a later release).
Locks: which tables are locked, how strongly, and for how long (`holdfast db upgrade --plan`).
"""

from alembic import op

revision = "${up_revision}"
down_revision = "${down_revision}"


def upgrade() -> None:
    ${upgrades if upgrades else 'op.execute("""\n    """)'}


def downgrade() -> None:
    ${downgrades if downgrades else 'op.execute("""\n    """)'}
