"""One chain on a worker: its attempts, what they report, when they write a checkpoint."""
