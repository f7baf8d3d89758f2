"""Tests of the public functions and estimators."""
