"""Tests against a real SGLang server on this machine's CPU: ``make test-sglang``. Deselected elsewhere.

What belongs here: what only the real server can show. Not here: faults on demand (``engines.fault_server``).
"""
