"""Training samples as files that the trainers read, with a manifest, laws, and an account of every prompt.

What belongs here: formats, filters, split, laws on what was written, verifying an export offline. Pure but for the
export's own directory. Not here: which partition is exported (``exporting``), Dagster.
"""
