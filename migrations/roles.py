"""Creates the roles, memberships and schema that the first revision requires.

Roles belong to the cluster and revisions to one database, so this is not a revision. It runs before
every upgrade and does nothing if everything exists. Each step is one `DO` block, so that `holdfast
db upgrade --sql` prints exactly what an upgrade runs.
"""

import re
from dataclasses import dataclass

import psycopg
from psycopg import sql

from holdfast.migrations.connect import statement
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import ALL, OWNER, SINK, STREAM_PREFIX

ROLE_NAME_BYTES_MAX = 63

_STREAM_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")

_EACH_ROLE = "ARRAY[" + ", ".join(f"'{role}'" for role in ALL) + "]"

# Another database of the cluster may be upgraded at the same time, and advisory locks are per
# database: the second upgrade waits for the first to commit and finds that the role exists.
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

# From Postgres 16 on, a membership can allow only SET ROLE, so that a session has no privileges
# until it sets a role. Before, the user's INHERIT attribute decides.
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

# Only this step needs CREATE on the database; later upgrades do not.
_CREATE_SCHEMA = f"""DO $$
BEGIN
    IF to_regnamespace('holdfast') IS NULL THEN
        CREATE SCHEMA holdfast AUTHORIZATION {OWNER};
    END IF;
END $$"""

# The sink stages a batch in a temporary table. PUBLIC may create one by default; hardened databases
# revoke that. GRANT without the privilege to grant is only a warning, hence the second check.
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
"""The idempotent steps, in order, each with the statement for an administrator if it is denied."""


def prepare(connection: psycopg.Connection) -> None:
    """Create what is missing, in the caller's transaction.

    If it is denied, raises `CommandError` with the statement for an administrator.
    """
    for step, cure in STEPS.items():
        try:
            with connection.transaction():
                connection.execute(step.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            reason = error.diag.message_primary or "permission denied"
            raise CommandError(
                f"the database was not prepared: {reason}. Nothing was changed. Ask an"
                f" administrator to run `{_filled(connection, cure)}`, then upgrade again.",
                code="permission_denied",
            ) from None


@dataclass(frozen=True, slots=True)
class StreamRole:
    """The role of a stream, and the next statements of an administrator for its job's login."""

    stream: str
    role: str
    made: bool
    grants: tuple[str, ...]


def make_stream_role(connection: psycopg.Connection, stream: str) -> StreamRole:
    """Create the role of a stream, with the privileges of holdfast_sink, if it does not exist.

    From then on only its members can write the stream: see `grants`. Raises `CommandError` for an
    invalid stream name, one that is too long for a role, or without the privilege to create roles.
    """
    role = STREAM_PREFIX + stream
    if not _STREAM_NAME.fullmatch(stream) or len(role) > ROLE_NAME_BYTES_MAX:
        raise CommandError(
            f"{stream!r} is not a valid stream name, or is too long for a role: expected at most"
            f" {ROLE_NAME_BYTES_MAX - len(STREAM_PREFIX)} characters a-z, 0-9, '_', '.' and '-',"
            " beginning with a letter or a digit. Nothing was changed.",
            ExitCode.USAGE,
            code="invalid_name",
        )
    name, modern = sql.Identifier(role), connection.info.server_version >= 16_00_00
    options = sql.SQL(" WITH INHERIT TRUE, SET FALSE" if modern else "")
    member = " WITH INHERIT FALSE, SET TRUE" if modern else ""
    try:
        with connection.transaction():
            exists = connection.execute(statement("role_there"), {"role": role}).fetchone()
            if not exists:
                connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(name))
            connection.execute(
                sql.SQL("GRANT {} TO {}").format(sql.Identifier(SINK), name) + options
            )
    except psycopg.errors.InsufficientPrivilege as error:
        reason = error.diag.message_primary or "permission denied"
        raise CommandError(
            f"the role was not created: {reason}. Nothing was changed. Ask an administrator to run"
            f' `CREATE ROLE "{role}" NOLOGIN; GRANT {SINK} TO "{role}"`.',
            code="permission_denied",
        ) from None
    grants = (f'GRANT "{role}" TO my_login{member}', f"REVOKE {SINK} FROM my_login")
    return StreamRole(stream, role, not exists, grants)


def reachable(connection: psycopg.Connection) -> dict[str, bool]:
    """Return the existing roles, each with whether the current user can SET ROLE to it."""
    modern = connection.info.server_version >= 16_00_00
    rows = connection.execute(
        statement("memberships"),
        {"roles": list(ALL), "privilege": "SET" if modern else "MEMBER"},
    )
    return {str(name): bool(may) for name, may in rows}


def _filled(connection: psycopg.Connection, cure: str) -> str:
    user, database = connection.execute(statement("whoami")).fetchone() or ("", "")
    return cure.format(user=user, database=database)
