"""Source files to prompt rows to prompt ids. Pure but for reading files; knows neither Dagster nor a model."""
