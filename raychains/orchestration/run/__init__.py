"""A run: its driver, the chains and evaluators that the driver dispatches, the pool of samples between them."""
