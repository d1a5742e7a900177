"""The schema revision that this version needs; a test compares it with the migrations."""

SCHEMA_REVISION = "0031"
