"""One resumable Markov chain: its step, what it draws, and where it diverges. Imports neither Ray nor the store."""
