"""Python twins of the models in docs/models, and what drives them beside a real database."""
