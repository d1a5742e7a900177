"""`holdfast demo checkpoints`: kill, save, rescale, restore, damage, and compare after each."""
