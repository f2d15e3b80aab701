"""The engine's decisions on a virtual clock: hours of many models on one card in seconds, without threads or sleep.

`python -m tests.bench.simulation` plays everything and writes the table and the plot of docs/simulation.md.
"""
