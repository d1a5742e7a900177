"""The receiver kit: verifications per core, and the inbox against plain inserts."""
