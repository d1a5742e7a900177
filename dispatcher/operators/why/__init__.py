"""Why an entry or a subject is where it is, and the command that helps."""
