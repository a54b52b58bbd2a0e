"""Who generates: the contract (``base``) and the engines that keep it.

What belongs here: sources of generations. Not here: retries, windows and storage (``generation``), Dagster.
"""
