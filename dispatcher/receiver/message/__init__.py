"""The messages of a delivery: its body, its signature, the answer and the receipt."""
