"""Where assets lie, and how Dagster reads and writes them: parquet on paths and object stores, whole or not at all."""
