"""Proof that samples stay what they are: recorded numbers (golden.json), and the bytes of an earlier commit (`make
golden`)."""
