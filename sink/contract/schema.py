"""The schema revision that this code was written for; a test compares it with the migrations."""

SCHEMA_REVISION = "0030"
