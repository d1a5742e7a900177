"""The conformance kit: sends requests to a receiver in any language and grades its answers."""
