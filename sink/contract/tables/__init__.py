"""The database of the newest revision, as SQLAlchemy metadata: the schema to compare with.

The revisions in `migrations/versions` create the database; a test compares it with these tables,
down to the text of each constraint and index. No service imports this package. Only the revisions
define storage parameters, partitions, functions and grants.
"""

from holdfast.sink.contract.tables import delivery, operators, outbox
from holdfast.sink.contract.tables.columns import ENUMS, SCHEMA, metadata

__all__ = ["ENUMS", "SCHEMA", "delivery", "exposure", "metadata", "operators", "outbox"]
