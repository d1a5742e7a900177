"""Hot paths of this tree and of an older commit in turns."""
