"""Style and layout of figures, the colour and marker of each arm, and tables."""
