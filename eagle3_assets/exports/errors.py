"""What may go wrong with an export, in words for people. Not here: anything that raises it."""


class ExportError(Exception):
    """Nothing could be exported, read or published; the text says what, where, and what to do."""
