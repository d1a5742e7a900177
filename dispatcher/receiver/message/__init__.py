"""A delivery as a message: its body, its signature, the answer and the receipt."""
