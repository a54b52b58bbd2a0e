"""The card of an export: ``README.md`` as the Hugging Face Hub reads and shows it.

What belongs here: the card's words. Not here: what it says (``manifest``).
"""

import json
from collections.abc import Iterator

from eagle3_assets.exports.formats import FORMATS
from eagle3_assets.exports.manifest import Manifest
from eagle3_assets.exports.selection import FATES, SPLITS
from eagle3_assets.exports.vocabulary import VocabularyRecord
from eagle3_assets.tokens.safe_text import markdown_code, markdown_text, visible
from eagle3_assets.tokens.wording import percent


def dataset_card(manifest: Manifest, vocabulary: VocabularyRecord | None = None) -> str:
    """The card: front matter, what the data is, lengths, how to load it, where the prompts went, the laws.

    Args:
        manifest: of the export.
        vocabulary: what its draft vocabulary was made of; None where it has none.
    """
    return "\n".join([*_front_matter(manifest), "", *_body(manifest, vocabulary)]) + "\n"


def _front_matter(manifest: Manifest) -> Iterator[str]:
    form = FORMATS[manifest.format]
    yield "---"
    yield "tags: [speculative-decoding, eagle-3" + (", lossy]" if manifest.lossy else "]")
    splits = [split for split in SPLITS if manifest.rows(split)]
    if form.hub_files and splits:
        yield "configs:"
        yield "- config_name: default"
        yield "  data_files:"
        for split in splits:
            name = "train" if split == "train" else "validation"
            yield f"  - {{split: {name}, path: {json.dumps(f'{split}/*{form.suffix}')}}}"
    yield "---"


def _body(manifest: Manifest, vocabulary: VocabularyRecord | None) -> Iterator[str]:
    form, target = FORMATS[manifest.format], manifest.target
    lossy = " (lossy: not the target's own tokens)" if manifest.lossy else ""
    yield f"# Training data for an EAGLE-3 drafter of {markdown_text(visible(target.model))}{lossy}"
    yield ""
    if manifest.lossy:
        yield "> **Lossy.** This is text. Tokenizing it again gives other ids than the target emitted: use it only with"
        yield "> tools that take nothing else, and expect a shorter acceptance length."
        yield ""
    yield f"Format `{manifest.format}`: {form.summary}."
    if not manifest.lossy:
        yield ""
        yield "The ids are those that the target emitted, the stop token included, after the prompt as it was sent. The"
        yield "loss mask is 0 for the prompt and 1 for the output, unshifted: position i of the mask belongs to id i."
    yield ""
    yield f"Target: {markdown_code(target.model)}, profile `{target.profile}`,"
    yield f"vocabulary {target.vocab_size:,}, weights {markdown_code(target.weights)},"
    yield f"tokenizer `{target.tokenizer_sha256[:16]}`."
    yield ""
    yield "## Lengths"
    yield ""
    yield "Tokens of prompt and output together; *trained* are those with a loss."
    yield ""
    yield "| side | partition | rows | tokens | trained | median | p95 | longest |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for split in SPLITS:
        for partition, one in manifest.lengths(split):
            cells = (one.rows, one.tokens, one.trained_tokens, one.median, one.p95, one.longest)
            yield f"| {split} | `{partition}` | " + " | ".join(f"{cell:,}" for cell in cells) + " |"
    yield ""
    yield "## Loading"
    yield ""
    yield "```python"
    yield f"from datasets import {form.loading.split('(')[0]}"
    yield ""
    yield f"rows = {form.loading.format(split='train')}"
    yield "```"
    yield ""
    if manifest.format == "speculators" and manifest.train_ratio is not None:
        yield "speculators takes its validation rows from the end: this directory as a whole is a dataset too, with"
        yield f"`eval` after `train`, and `--train-data-ratio {manifest.train_ratio}` parts it between them."
        yield ""
    yield "`eagle3-assets verify DIR` checks a copy of this directory: hashes, laws, and where every prompt went."
    yield ""
    if vocabulary:
        yield from _vocabulary(vocabulary)
    yield "## Where the prompts went"
    yield ""
    yield "| | prompts | |"
    yield "|---|--:|---|"
    for fate, count in manifest.fates.items():
        yield f"| {fate} | {count:,} | {FATES[fate]} |"
    yield f"| all | {sum(one.prompts for one in manifest.partitions):,} | |"
    yield ""
    yield "`index/` says the same of every prompt by id."
    yield ""
    if manifest.left_out:
        named = ", ".join(f"`{partition}` ({state})" for partition, state in manifest.left_out.items())
        yield f"Not in this export, as they could not be exported with the others: {named}."
        yield ""
    yield "## Laws"
    yield ""
    yield "Judged on these files, read back, against the hashes taken when the outputs were captured."
    yield ""
    for figures in manifest.laws:
        yield f"- {markdown_text(visible(figures.sentence))}"


def _vocabulary(made: VocabularyRecord) -> Iterator[str]:
    yield "## Draft vocabulary"
    yield ""
    yield f"{made.draft_vocab_size:,} of the target's {made.vocab_size:,} ids, by how often each has a loss in `train`:"
    yield f"they cover {percent(made.coverage, 2)} of its {made.tokens:,} trained tokens ({made.seen_ids:,} ids are"
    yield f"seen; the knee is at {made.knee:,}). The {len(made.structural_ids)} structural ids of the target are always"
    yield "in."
    yield ""
    yield "- SpecForge: `model.vocab_mapping_path: vocabulary/vocab_mapping.pt`, and a draft config with"
    yield f"  `draft_vocab_size` {made.draft_vocab_size}"
    yield "- speculators: `--d2t-path vocabulary/d2t.npy --t2d-path vocabulary/t2d.npy"
    yield f"  --draft-vocab-size {made.draft_vocab_size}`"
    yield "- `vocabulary/token_freq.pt`: `{target id: count}`"
    yield ""
