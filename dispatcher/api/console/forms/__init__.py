"""Forms and what is read from them."""
