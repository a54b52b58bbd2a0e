"""Dagster's way in and out of storage.

What belongs here: the two IO managers. Not here: how a file is written (``files``), how generations are sealed
(``generation.sealed``).
"""

import dagster as dg
import polars as pl

from eagle3_assets.generation.errors import SealedError
from eagle3_assets.generation.sealed import Sealed
from eagle3_assets.storage.files import StorageError, scan_parquet, sealed_generations, write_parquet
from eagle3_assets.storage.layout import WHOLE, Layout


class ParquetIOManager(dg.IOManager):
    """One parquet file per asset partition, or per asset without partitions; frames go in, lazy frames come out."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def handle_output(self, context: dg.OutputContext, obj: pl.DataFrame | pl.LazyFrame) -> None:
        """Writes a file, replacing what was there."""
        partition = context.asset_partition_key if context.has_asset_partitions else WHOLE
        path = self._layout.asset_file(context.asset_key.path[-1], partition)
        try:
            write_parquet(obj, path)
        except StorageError as error:
            raise dg.Failure(str(error), allow_retries=True) from error

    def load_input(self, context: dg.InputContext) -> pl.LazyFrame:
        """Scans a partition."""
        asset = context.asset_key.path[-1]
        try:
            return scan_parquet(self._layout.asset_file(asset, context.asset_partition_key), asset=asset)
        except StorageError as error:
            raise dg.Failure(str(error), allow_retries=False) from error


class GenerationsIOManager(dg.IOManager):
    """Finds the sealed generations that a partition's pointer names. Sealing is the generation loop's own work.

    What comes out is the sealed file, not its rows: rows and the identity that made them must be of the same file.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def handle_output(self, context: dg.OutputContext, obj: None) -> None:
        """Nothing is left to write: the asset seals its file itself."""

    def load_input(self, context: dg.InputContext) -> Sealed:
        """The current sealed file."""
        try:
            return sealed_generations(self._layout, context.asset_partition_key)
        except (StorageError, SealedError) as error:
            raise dg.Failure(str(error), allow_retries=False) from error
