"""The only room that imports Ray: workers, the coordinator's shell, the sample pool, the evaluators."""
