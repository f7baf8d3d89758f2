"""Fidelity of the methods to full-batch HMC on CIFAR-10."""
