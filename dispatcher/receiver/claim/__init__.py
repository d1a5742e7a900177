"""Claims each delivery once: the statements of the inbox, and when to run them. No I/O."""
