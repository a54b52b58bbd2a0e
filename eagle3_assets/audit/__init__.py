"""Judging files of model outputs that anybody made, by the laws of token fidelity.

What belongs here: reading foreign files into the contract's columns, and the result as data. Not here: the laws
(``tokens``), the terminal (``cli``). Nothing here knows Dagster or changes a file.
"""
