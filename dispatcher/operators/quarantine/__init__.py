"""The quarantine: rows that the sink or the job refused; corrected or dismissed by a person."""
