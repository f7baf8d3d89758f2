"""Decisions, without Ray, files or models: which worker runs which chain, what follows a failure, what fits a node."""
