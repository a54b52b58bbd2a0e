"""Dagster's face of the laws: check specs, severity, evidence.

What belongs here: turning a report into check results. Not here: any law (``tokens.laws``).
"""
