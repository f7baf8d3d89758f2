"""Published comparisons as data: arms, settings and published numbers."""
