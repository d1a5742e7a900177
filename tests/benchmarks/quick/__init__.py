"""Hot paths of two commits in turns, in two minutes."""
