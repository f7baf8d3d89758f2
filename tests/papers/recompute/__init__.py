"""One cell of every experiment, recomputed without raychains, from what lies in the store: `cells.CHECKS`."""
