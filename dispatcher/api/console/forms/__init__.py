"""Forms, and the functions that parse them."""
