"""The page, the figures and the table of a sweep, from what its folder holds."""
