"""The receiving half, measured: verifications a core, and the inbox against bare inserts."""
