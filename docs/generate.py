"""Writes the reference pages that are generated from the code: ``python docs/generate.py``.

A test compares the pages with what this makes, so that they cannot fall behind.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from eagle3_assets.config import Eagle3Config, inner_models
from eagle3_assets.contract import COLUMN_MEANINGS, SCHEMAS
from eagle3_assets.tokens.laws import LAWS, ON_REQUEST

HERE = Path(__file__).parent

EFFECTS = {
    "block": "nothing is generated",
    "refuse": "`training_samples` refuses the partition",
    "quarantine": "the sample is left out; above the dataset's `quarantine_limit` the partition is refused",
    "warn": "a person judges; nothing is filtered",
}


def laws_page() -> str:
    """``docs/laws.md``."""
    lines = [
        "# The laws of token fidelity",
        "",
        "Generated from the declarations in `eagle3_assets/tokens/laws`. Each law is one asset check per partition,",
        "and `training_samples` applies the same functions itself: it does not trust a stored check status. A law that",
        "lacks what it needs is *not judged*, and its check does not pass.",
        "",
        "| effect | what happens when a law is broken |",
        "|---|---|",
        *(f"| {effect} | {meaning} |" for effect, meaning in EFFECTS.items()),
    ]
    for asset in dict.fromkeys(law.asset for law in LAWS):
        lines += ["", f"## Laws of `{asset}`", ""]
        for law in (law for law in (*LAWS, *ON_REQUEST) if law.asset == asset):
            lines += [
                f"### `{law.name}`",
                "",
                f"{law.definition}",
                "",
                f"- Effect: {law.effect}. About: one {law.scope}.",
            ]
            if law in ON_REQUEST:
                lines.append("- Judged on request alone, since it costs the target's time: see [replay](replay.md).")
            lines += [f"- Broken, it means: {law.meaning}", f"- What to do: {law.remedy}"]
            if law.causes:
                lines.append(f"- Seen in: {', '.join(law.causes)}")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def configuration_page() -> str:
    """``docs/configuration.md``."""
    lines = [
        "# Configuration",
        "",
        "Generated from the models in `eagle3_assets/config.py`. The file is found through `EAGLE3_CONFIG`; without it",
        "the packaged demo's is used. Paths are relative to the file. `EAGLE3_STORAGE` replaces `storage.root`; with",
        "neither, data lies in `.eagle3/data` below the folder in which the command runs. An unknown key is an error,",
        "which names the key and what is allowed there.",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
        *(f"| `{key}` | {default} | {meaning} |" for key, default, meaning in _keys(Eagle3Config)),
    ]
    return "\n".join(lines) + "\n"


def data_page() -> str:
    """``docs/data.md``."""
    lines = [
        "# The data contract",
        "",
        "Generated from `eagle3_assets/contract.py`. Every asset is one parquet file per partition (zstd, row groups",
        "of 2,000), written under another name and renamed when it is on disk.",
    ]
    for asset, schema in SCHEMAS.items():
        lines += ["", f"## `{asset}`", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | `{dtype}` | {COLUMN_MEANINGS[name]} |" for name, dtype in schema.items()]
    return "\n".join(lines) + "\n"


PAGES = {"laws.md": laws_page, "configuration.md": configuration_page, "data.md": data_page}


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        inner = inner_models(field.annotation)
        many = "[]" if str(field.annotation).startswith("tuple") and inner else ""
        key = f"{prefix}{name}{many}"
        if inner and inner[0].__name__ != "Band":
            for one in inner:
                # Where a key may hold one of several kinds, each row says of which.
                kind = f"*{one.model_fields['kind'].default}*: " if len(inner) > 1 else ""
                yield from ((below, default, kind + meaning) for below, default, meaning in _keys(one, f"{key}."))
            continue
        default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
        yield key, default, field.description or ""


if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
