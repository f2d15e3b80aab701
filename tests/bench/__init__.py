"""Load against the real embedded stack, measured from outside. Run with `make bench` or `python -m tests.bench`.

The package asserts nothing about speed: it prints what it measured beside the target and says reached or not reached.
docs/benchmarks.md tells the method, the numbers and what limits each.
"""
