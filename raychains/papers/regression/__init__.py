"""Regression on UCI tables, beside bde's benchmark and MC dropout's classic splits."""
