"""Values, charts and sentences of pages. Pure."""
