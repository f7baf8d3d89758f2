"""An inventory of what users have, committed as ``inventory.json``; the test beside it fails where the code has less.

``python -m tests.inventory`` prints what is new, reworded and lost. ``--write`` brings the file up to date, but keeps
in it what is lost. An option, kind, event or other name may go, or get another default, once the top section of
CHANGELOG.md names its last word in backquotes (outside "Added" and "Fixed"). Texts may be reworded at will. A message
may go once ``dropped.json`` has it with a reason, a fact of a docstring or help text once it has ``NAME: FACT``. A
docstring is known by its function's name and is lost sight of with it: write the file after names change and before
docstrings do.
"""
