"""The feeder: works batches through, by lines that become jobs of the bulk lane. See docs/batches.md.

It is a process of its own (`python -m api.feeding`), beside the API because a line is read by the same dialects and
comes through the same door as a call.
"""
