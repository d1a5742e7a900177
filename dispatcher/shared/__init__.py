"""Code that every package of the dispatcher uses; it imports none of them."""
