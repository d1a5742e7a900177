"""Event files, their formats, and which rows are events."""
