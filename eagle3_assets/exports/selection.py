"""Which samples are exported, on which side of the split, and where every other prompt ended.

What belongs here: filters, the split, and the fates of prompts. Not here: files, reading partitions.
"""

import hashlib

import polars as pl

from eagle3_assets.config import Export
from eagle3_assets.contract import TRAINING_EXPORT

TRAIN, EVAL = "train", "eval"
SPLITS = (TRAIN, EVAL)

FATES = {
    TRAIN: "exported, to train on",
    EVAL: "exported, held out",
    "refused_prompt": "never sent: the prompt was refused",
    "not_generated": "no output yet",
    "failed": "sent, and no output came",
    "quarantined": "its output breaks a law",
    "too_long": "longer than the trainer's max_length",
    "cut_off": "the cap ended the output, and such are dropped",
    "nothing_to_learn": "no token has a loss",
}
"""Where a prompt can end, and what that means: the exported ones, then the others as they fall away on the way there.

Each prompt ends in exactly one.
"""

DECIDED = (TRAIN, EVAL, "too_long", "cut_off", "nothing_to_learn")
"""The fates that the export itself decides."""

SHARD_TOKENS = 8 << 20
"""Most input ids in a file, one row aside: a file is made in memory."""


def held_out(conversation_id: str, share: float) -> bool:
    """Whether a conversation is held out: by its id alone, so that a longer corpus never moves one.

    A larger share holds out the same ones and more.
    """
    # The shard of a conversation comes of another hash: else a shard could be held out as a whole.
    rank = int.from_bytes(hashlib.sha256(b"eval\0" + conversation_id.encode()).digest()[:8], "big")
    return rank < share * 2**64


def prompt_fates(prompts: pl.DataFrame, raw: pl.DataFrame, quarantined: pl.DataFrame) -> pl.DataFrame:
    """Where every prompt ended before anything was selected for export.

    Args:
        prompts: ``sample_id``, ``conversation_id``, ``status`` and ``reason`` as of ``tokenized_prompts``; its order
            is kept. A null status is a prompt that was not tokenized.
        raw: ``sample_id``, ``status``, ``reason``, ``prompt_tokens``, ``output_tokens`` (null without an output),
            ``finish_type`` and ``ids_sha256`` of ``raw_generations``.
        quarantined: ``sample_id`` and ``reason``.

    Returns:
        ``contract.TRAINING_EXPORT``; ``fate`` is null where the output can be used, and nothing is in a file yet.
    """
    broken = quarantined.select("sample_id", broken=pl.lit(value=True), why=pl.col("reason"))
    rows = raw.rename({"status": "raw_status", "reason": "raw_reason"})
    fate = (
        pl.when(pl.col("raw_status") == "generated")
        .then(pl.when(pl.col("broken")).then(pl.lit("quarantined")))
        .when((pl.col("raw_status") == "refused_prompt") | (pl.col("status") == "refused"))
        .then(pl.lit("refused_prompt"))
        .when(pl.col("raw_status") == "failed")
        .then(pl.lit("failed"))
        .otherwise(pl.lit("not_generated"))
    )
    reason = pl.when(pl.col("broken")).then(pl.col("why")).otherwise(pl.coalesce("raw_reason", "reason"))
    return (
        prompts.join(rows, on="sample_id", how="left", maintain_order="left")
        .join(broken, on="sample_id", how="left", maintain_order="left")
        .with_columns(pl.col("broken").fill_null(value=False))
        .select(
            "sample_id",
            "conversation_id",
            fate=fate,
            reason=reason,
            file=pl.lit(None, pl.String),
            row=pl.lit(None, pl.Int32),
            sample_tokens=(pl.col("prompt_tokens") + pl.col("output_tokens")).cast(pl.Int32),
            trained_tokens=pl.col("output_tokens").cast(pl.Int32),
            masked_tail=pl.lit(0, pl.Int32),
            finish_type=pl.col("finish_type"),
            ids_sha256=pl.col("ids_sha256"),
        )
        .select(TRAINING_EXPORT.names())
    )


def select(fates: pl.DataFrame, settings: Export) -> pl.DataFrame:
    """Decides of every usable sample whether it is exported, and on which side.

    Args:
        fates: as :func:`prompt_fates` gives them.
        settings: the filters and the split.

    Returns:
        the same rows with every ``fate`` decided, and ``masked_tail`` and ``trained_tokens`` as they will be.
    """
    cut = pl.col("finish_type") == "length"
    tail = settings.cut_off_tail if settings.cut_off == "mask" else 0
    masked = fates.with_columns(
        masked_tail=pl.when(cut & pl.col("fate").is_null())
        .then(pl.min_horizontal(pl.lit(tail), "trained_tokens"))
        .otherwise(0)
        .cast(pl.Int32)
    ).with_columns(trained_tokens=pl.col("trained_tokens") - pl.col("masked_tail"))
    conversations = fates["conversation_id"].unique()
    out = [name for name in conversations.to_list() if held_out(name, settings.eval_share)]
    side = pl.when(pl.col("conversation_id").is_in(out)).then(pl.lit(EVAL)).otherwise(pl.lit(TRAIN))
    limit = pl.lit(settings.max_length, pl.Int32)  # null without one, and so is what is compared with it
    chosen = (
        pl.when(pl.col("sample_tokens") > limit)
        .then(pl.lit("too_long"))
        .when(cut & pl.lit(settings.cut_off == "drop"))
        .then(pl.lit("cut_off"))
        .when(pl.col("trained_tokens") == 0)
        .then(pl.lit("nothing_to_learn"))
        .otherwise(side)
    )
    why = pl.when(pl.col("fate").is_null() & (chosen == "too_long")).then(
        pl.format("{} tokens are more than max_length, {}", "sample_tokens", limit)
    )
    return masked.with_columns(fate=pl.coalesce("fate", chosen), reason=pl.coalesce("reason", why))


def place(selected: pl.DataFrame, shard_rows: int, name: str, suffix: str) -> pl.DataFrame:
    """Gives every exported sample its file and its row there, in order.

    Args:
        selected: as :func:`select` gives them.
        shard_rows: most rows in a file.
        name: files are ``<split>/<name>-00000<suffix>``.
        suffix: of the format.
    """
    counts = dict.fromkeys(SPLITS, (0, 0, 0))  # shard, rows and tokens in it
    files: list[str | None] = []
    rows: list[int | None] = []
    for fate, tokens in selected.select("fate", "sample_tokens").iter_rows():
        if fate not in SPLITS:
            files.append(None)
            rows.append(None)
            continue
        shard, filled, held = counts[fate]
        if filled == shard_rows or (filled and held + tokens > SHARD_TOKENS):
            shard, filled, held = shard + 1, 0, 0
        files.append(f"{fate}/{name}-{shard:05d}{suffix}")
        rows.append(filled)
        counts[fate] = (shard, filled + 1, held + tokens)
    return selected.with_columns(pl.Series("file", files, dtype=pl.String), pl.Series("row", rows, dtype=pl.Int32))
