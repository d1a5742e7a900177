"""How a delivery is claimed once: the statements of the inbox and who runs them. No I/O."""
