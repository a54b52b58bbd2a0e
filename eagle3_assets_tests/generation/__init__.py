"""Tests of the generation loop, its journal and its files."""
