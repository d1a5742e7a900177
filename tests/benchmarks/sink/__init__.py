"""The sink beside what people write by hand, how it grows, and what a large batch costs it."""
