"""Sources of events, their formats, and the validation of rows."""
