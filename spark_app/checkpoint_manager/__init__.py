"""`job checkpoints`: what a checkpoint holds, whether it is intact, and how to go back in it."""
