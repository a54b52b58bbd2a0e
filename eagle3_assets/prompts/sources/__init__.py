"""What prompts are read from: which files a source has, and the rows of each, streamed.

What belongs here: finding files, unpacking, cutting into rows, telling whether a file has changed. Not here: what a row
means (``prompts.formats``), which rows a partition takes (``prompts.rows``).
"""

from eagle3_assets.prompts.sources.changes import FileState, differences
from eagle3_assets.prompts.sources.estimate import RowEstimate, estimate_rows
from eagle3_assets.prompts.sources.places import Found, PromptSourceError, SourceFile, find
from eagle3_assets.prompts.sources.reading import OpenSource, SourceRow

__all__ = [
    "FileState",
    "Found",
    "OpenSource",
    "PromptSourceError",
    "RowEstimate",
    "SourceFile",
    "SourceRow",
    "differences",
    "estimate_rows",
    "find",
]
