"""The conformance kit: fires at a receiver in any language and grades what it answers."""
