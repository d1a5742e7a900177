"""Dead letters: entries that are no longer tried; dismissed or sent again by a person."""
