"""One run of the job: attempts, restarts, failures, stop."""
