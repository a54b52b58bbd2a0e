"""Summaries of made-up corpora, for pages and pictures."""

from typing import Any

import numpy as np
import polars as pl

from eagle3_assets.contract import CORPUS_SUMMARY
from eagle3_assets.summary import State
from eagle3_assets.tokens.lengths import added_counts, counted_figures, length_counts


def row(**figures: Any) -> dict[str, Any]:
    """A row of ``contract.CORPUS_SUMMARY`` with these figures, and those of ``lengths`` where they are given."""
    counts = length_counts(pl.Series(figures.pop("lengths", [10, 20, 20, 400]), dtype=pl.Int32))
    empty: dict[str, Any] = {name: 0 if dtype == pl.Int64 else None for name, dtype in CORPUS_SUMMARY.items()}
    return {**empty, **counted_figures(counts), "laws_warned": [], "partitions": [], **figures}


def partition(key: str, state: State, *why: str, samples: int = 0) -> dict[str, Any]:
    return {"partition": key, "state": state, "samples": samples, "tokens": samples * 400, "why": list(why)}


def corpus() -> pl.DataFrame:
    """Three datasets whose lengths differ, and partitions in most states."""
    random = np.random.default_rng(0)
    lengths = {
        name: np.clip(random.lognormal(np.log(median), spread, samples), 5, 10_000).astype(np.int32)
        for name, median, spread, samples in (
            ("B1_glaive", 310, 0.5, 9_000),
            ("B2_chat", 900, 0.8, 20_000),
            ("B5_openthoughts", 4_200, 0.6, 8_000),
        )
    }
    states = {
        "B1_glaive": [partition("B1_glaive", "complete", samples=9_000), partition("B1_glaive-trial", "trial")],
        "B2_chat": [
            partition(
                "B2_chat",
                "stale",
                "made with other settings: sampling.temperature: 0.7 -> 1.0",
                "20,412 prompts to generate",
                samples=20_000,
            )
        ],
        "B5_openthoughts": [
            partition("B5_openthoughts-00of03", "complete", samples=8_000),
            partition("B5_openthoughts-01of03", "refused", "stored_as_captured: 3 of 8,012 samples break it (0.04%)."),
            partition("B5_openthoughts-02of03", "missing"),
        ],
    }
    warned = {
        "B2_chat": [{"law": "length_band", "partitions": 1}],
        "B5_openthoughts": [{"law": "cut_off", "partitions": 1}],
    }
    waiting = {"B1_glaive": 0, "B2_chat": 20_412, "B5_openthoughts": 8_015}
    rows = []
    for name, tokens in lengths.items():
        figures = counted_figures(length_counts(pl.Series(tokens)))
        rows.append(
            row(
                dataset=name,
                **figures,
                reasoning_share=0.6,
                cut_off_share=float((tokens == 10_000).mean()),
                drift_share=0.012,
                laws_warned=warned.get(name, []),
                partitions=states[name],
                to_generate=waiting[name],
                projected_samples=len(tokens) + waiting[name],
                projected_tokens=int(tokens.sum() / len(tokens) * (len(tokens) + waiting[name])),
                projected_at_cap=0,
                projection_basis="measured",
                seconds_left=waiting[name] * 0.4,
            )
        )
    together = counted_figures(added_counts([length_counts(pl.Series(tokens)) for tokens in lengths.values()]))
    sums = {
        name: sum(r[name] for r in rows)
        for name in ("to_generate", "projected_samples", "projected_tokens", "projected_at_cap", "seconds_left")
    }
    shares = {"reasoning_share": 0.6, "cut_off_share": 0.03, "drift_share": 0.012, "projection_basis": "measured"}
    whole = row(
        dataset=None,
        **together,
        **sums,
        **shares,
        laws_warned=[law for found in warned.values() for law in found],
        partitions=[p for found in states.values() for p in found],
    )
    return pl.DataFrame([*rows, whole], schema=CORPUS_SUMMARY)
