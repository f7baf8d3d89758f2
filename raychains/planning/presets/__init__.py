"""Named comparisons and the default arms of `raychains compare` and `raychains run`."""
