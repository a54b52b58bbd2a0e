"""Writes the reference pages that are generated from the code: ``python docs/generate.py``.

A test compares the pages with what this makes, so that they cannot fall behind.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from eagle3_assets.config import Eagle3Config, inner_models
from eagle3_assets.contract import COLUMN_MEANINGS, SCHEMAS
from eagle3_assets.tokens.builtin_profiles import PROFILES
from eagle3_assets.tokens.context import SAMPLE_ROWS
from eagle3_assets.tokens.laws import LAWS, ON_REQUEST, RowLaw
from eagle3_assets.tokens.profile_spec import ProfileSpec

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
            if isinstance(law, RowLaw) and law.sampled:
                lines.append(f"- Judged on a sample: the first {SAMPLE_ROWS:,} rows by a stable hash of the sample id.")
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
        "of 2,000), written under another name and renamed when it is on disk; `corpus_summary` and",
        "`draft_vocabulary`, which are of all partitions, are one file each. What trainers read of the latter lies",
        "beside it: [the draft vocabulary](draft-vocabulary.md).",
    ]
    for asset, schema in SCHEMAS.items():
        lines += ["", f"## `{asset}`", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | `{dtype}` | {COLUMN_MEANINGS[name]} |" for name, dtype in schema.items()]
    return "\n".join(lines) + "\n"


def profiles_page() -> str:
    """``docs/profiles.md``."""
    lines = [
        "# Target profiles",
        "",
        "Generated from `eagle3_assets/tokens/builtin_profiles.py`. A profile is what the laws know of a target: which",
        "tokens stop it, reason, call tools or belong to prompts alone, and how a prompt ends before generation. A law",
        "whose facts a profile does not describe says *not judged*.",
        "",
        "`reasoning_habit` is what a target does where its prompt neither opens nor closes reasoning: it `opens` it",
        "with its first id, or `never` reasons. A habit is no certainty, so an output without it is remarked on and",
        "kept; what no target does, as ending reasoning twice, breaks a law. `stop_optional` are stop tokens which not",
        "every tokenizer of the family has.",
        "",
        "`target.profile: auto` takes a profile whose telling tokens the tokenizer has. Where several fit, one user",
        "message is rendered by the target's chat template with and without thinking, and the profile is taken whose",
        "suffixes it ends with, the one with thinking counting first. Where this decides nothing, as for a tokenizer",
        "without a template, it is the first that fits in the order of the table; so name the profile where there is",
        "no template. Where no profile fits, that is an error: name the nearest one and correct it with",
        "`target.profile_overrides`, or take `plain`.",
        "",
        "Genuine samples of every profile, odd habits included, pass every law that judges them, and damaged ones do",
        "not (`make test`). The same holds on the real tokenizers of Qwen3, DeepSeek, gpt-oss and Llama 3",
        "(`make test-tokenizers`); Kimi's tokenizers and ChatML's are stood in for by small ones with their tokens.",
        "",
        "| profile | for | telling tokens |",
        "|---|---|---|",
        *(f"| `{s.name}` | {_cell(s.summary)} | {_tokens(s.detected_by)} |" for s in PROFILES.values()),
    ]
    for spec in PROFILES.values():
        lines += ["", f"## `{spec.name}`", "", "| fact | |", "|---|---|"]
        lines += [f"| {_cell(fact)} | {value} |" for fact, value in _facts(spec)]
    return "\n".join(lines) + "\n"


PAGES = {
    "laws.md": laws_page,
    "configuration.md": configuration_page,
    "data.md": data_page,
    "profiles.md": profiles_page,
}


def _facts(spec: ProfileSpec) -> Iterator[tuple[str, str]]:
    """Every fact of a profile with a value, as two cells; what says which targets it is for is in the first table."""
    for name, value in spec.model_dump(exclude={"name", "summary", "detected_by"}, exclude_defaults=True).items():
        yield from _fact(name, value)


def _fact(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fact(f"{name}.{key}", inner)
    else:
        yield f"`{name}`", _value(value)


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return _tokens(value) or "none"
    return _tokens([value]) if isinstance(value, str) else str(value)


def _tokens(tokens: Iterable[str]) -> str:
    """Tokens as code in a table's cell, newlines written as in JSON."""
    shown = (token.replace("\n", "\\n") for token in tokens)
    return _cell(" ".join(f"`{token}`" for token in shown))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
