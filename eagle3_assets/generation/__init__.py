"""The loop around an engine: what is missing, asking for it, keeping every answer, sealing the partition.

What belongs here: from tokenized prompts to a sealed partition. Not here: Dagster, and how an engine makes tokens.
"""
