"""Whole runs on simulated time, processes, network and disk, each from one integer; the driver, its lease and the store
are the real ones.

``python -m tests.simulation SEED`` tells the history of a seed; without a seed it goes on counting where it stopped.
"""
