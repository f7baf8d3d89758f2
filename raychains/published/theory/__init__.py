"""The papers' theorems, checked numerically."""
