"""What must exist before the first revision: the roles, the memberships, the schema.

Roles belong to the whole cluster and the revisions to one database, so this is not a revision. It
runs before every upgrade and does nothing where everything is there. Each step is one `DO` block,
so that `holdfast db upgrade --sql` prints exactly what an upgrade runs.
"""

import re
from dataclasses import dataclass

import psycopg
from psycopg import sql

from migrations.connect import statement
from sink.contract.exits import CommandError, ExitCode
from sink.contract.roles import ALL, OWNER, SINK, STREAM_PREFIX

ROLE_NAME_BYTES_MAX = 63

_STREAM_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")

_EACH_ROLE = "ARRAY[" + ", ".join(f"'{role}'" for role in ALL) + "]"

# Another database of the cluster may be upgraded at the same moment, and an advisory lock ends at
# the database: whoever comes second waits for the first to commit and finds the role made.
_CREATE_ROLES = f"""DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY {_EACH_ROLE} LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END $$"""

# From Postgres 16 a membership can be for SET ROLE alone, so that a session has no right at all
# until it takes on a role. Before, the user's own INHERIT attribute decides.
_JOIN_ROLES = f"""DO $$
DECLARE
    role   text;
    modern boolean := current_setting('server_version_num')::integer >= 160000;
BEGIN
    FOREACH role IN ARRAY {_EACH_ROLE} LOOP
        IF NOT pg_has_role(current_user, role, CASE WHEN modern THEN 'SET' ELSE 'MEMBER' END) THEN
            BEGIN
                EXECUTE format('GRANT %I TO %I', role, current_user)
                    || CASE WHEN modern THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
            EXCEPTION WHEN unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END $$"""

# Only this step needs CREATE on the database, so a later upgrade does without.
_CREATE_SCHEMA = f"""DO $$
BEGIN
    IF to_regnamespace('holdfast') IS NULL THEN
        CREATE SCHEMA holdfast AUTHORIZATION {OWNER};
    END IF;
END $$"""

# The sink stages a batch in a temporary table. PUBLIC may make one by default; a hardened database
# has revoked that. GRANT without the right to grant is only a warning, hence the second look.
_GRANT_TEMPORARY = f"""DO $$
BEGIN
    IF NOT has_database_privilege('{SINK}', current_database(), 'TEMPORARY') THEN
        EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO {SINK}', current_database());
    END IF;
    IF NOT has_database_privilege('{SINK}', current_database(), 'TEMPORARY') THEN
        RAISE insufficient_privilege USING MESSAGE = '{SINK} may not make temporary tables';
    END IF;
END $$"""

STEPS = {
    _CREATE_ROLES: "ALTER ROLE {user} CREATEROLE",
    _JOIN_ROLES: f"GRANT {', '.join(ALL)} TO {{user}}",
    _CREATE_SCHEMA: "GRANT CREATE ON DATABASE {database} TO {user}",
    _GRANT_TEMPORARY: f"GRANT TEMPORARY ON DATABASE {{database}} TO {SINK}",
}
"""Each idempotent step, in order, and what an administrator runs for a user who may not take it."""


def prepare(connection: psycopg.Connection) -> None:
    """Make what is missing, in the caller's transaction.

    Raises `CommandError` with the statement for an administrator when the user may not.
    """
    for step, cure in STEPS.items():
        try:
            with connection.transaction():
                connection.execute(step.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            reason = error.diag.message_primary or "permission denied"
            raise CommandError(
                f"the database was not prepared: {reason}. Nothing was changed; let an"
                f" administrator run `{_filled(connection, cure)}`, then upgrade again."
            ) from None


@dataclass(frozen=True, slots=True)
class StreamRole:
    """The role of a stream, and what an administrator runs next for the login of its job."""

    stream: str
    role: str
    made: bool
    grants: tuple[str, ...]


def make_stream_role(connection: psycopg.Connection, stream: str) -> StreamRole:
    """Make the role that alone writes a stream, with the rights of holdfast_sink; once.

    From then on nobody else writes it: see `grants`. Raises `CommandError` for a name that no
    stream has, or that is too long for a role, and where the user may not make roles.
    """
    role = STREAM_PREFIX + stream
    if not _STREAM_NAME.fullmatch(stream) or len(role) > ROLE_NAME_BYTES_MAX:
        raise CommandError(
            f"{stream!r} is not the name of a stream, or too long for a role: expected at most"
            f" {ROLE_NAME_BYTES_MAX - len(STREAM_PREFIX)} of a-z, 0-9, '_', '.' and '-', the first"
            " one a letter or a digit. Nothing was changed.",
            ExitCode.USAGE,
        )
    name, modern = sql.Identifier(role), connection.info.server_version >= 16_00_00
    options = sql.SQL(" WITH INHERIT TRUE, SET FALSE" if modern else "")
    member = " WITH INHERIT FALSE, SET TRUE" if modern else ""
    try:
        with connection.transaction():
            found = connection.execute(statement("role_there"), {"role": role}).fetchone()
            if not found:
                connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(name))
            connection.execute(
                sql.SQL("GRANT {} TO {}").format(sql.Identifier(SINK), name) + options
            )
    except psycopg.errors.InsufficientPrivilege as error:
        reason = error.diag.message_primary or "permission denied"
        raise CommandError(
            f"the role was not made: {reason}. Nothing was changed; let an administrator run"
            f' `CREATE ROLE "{role}" NOLOGIN; GRANT {SINK} TO "{role}"`.'
        ) from None
    grants = (f'GRANT "{role}" TO my_login{member}', f"REVOKE {SINK} FROM my_login")
    return StreamRole(stream, role, not found, grants)


def reachable(connection: psycopg.Connection) -> dict[str, bool]:
    """Return the roles that exist, each with whether the current user may take it on."""
    modern = connection.info.server_version >= 16_00_00
    rows = connection.execute(
        statement("memberships"),
        {"roles": list(ALL), "privilege": "SET" if modern else "MEMBER"},
    )
    return {str(name): bool(may) for name, may in rows}


def _filled(connection: psycopg.Connection, cure: str) -> str:
    user, database = connection.execute(statement("whoami")).fetchone() or ("", "")
    return cure.format(user=user, database=database)
