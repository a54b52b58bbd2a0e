"""Source files to prompt rows to prompt ids; knows neither Dagster nor a model.

Pure but for reading files and keeping what was learned of their rows (``row_index``).
"""
