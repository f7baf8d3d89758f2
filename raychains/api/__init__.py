"""The Python API, which `raychains` exports and the command line calls: run, compare, evaluate, report, export."""
