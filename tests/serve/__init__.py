"""Serving: requests and answers by themselves, and over HTTP from real replicas."""
