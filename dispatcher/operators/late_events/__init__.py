"""Events that the exposure job did not apply."""
