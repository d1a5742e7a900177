"""The sink against hand-written alternatives, its growth, and its memory for a large batch."""
