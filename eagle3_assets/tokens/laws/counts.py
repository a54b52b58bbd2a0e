"""Laws that compare ids with what the engine and the prompts say of them: counts, echoes, the vocabulary."""

from operator import ne

import numpy as np
import polars as pl

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import TokenColumn
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, counted, find, needs_current_prompts, shown_id
from eagle3_assets.tokens.safe_text import visible

REASONING_TOKENS = "reasoning_tokens"
"""A column that some sources have beside the contract's: output ids that the engine counted as reasoning."""

SERVER_PROMPT_IDS = "server_prompt_ids"
"""A column that some sources have beside the contract's: the prompt ids that the engine returned."""

CONTRADICTION = "contradiction"
"""A column that some sources have beside the contract's: what a row says in two ways that cannot both be."""

_COUNTS = ("completion_tokens", "server_prompt_tokens", "cached_tokens", REASONING_TOKENS)


def judge_no_prompt_echo(batch: Batch) -> RowJudgement:
    """Looks for the prompt's tail at the front of outputs that are longer than their count."""
    echo = batch.echo

    def detail(row: int) -> str:
        echoed, rest = int(echo[row]), int(batch.output.lengths[row] - echo[row])
        follow = f"{counted(rest, 'counted one')} {'follows' if rest == 1 else 'follow'}"
        return f"prompt echo: the output starts with the prompt's last {counted(echoed, 'id')}, {follow}"

    recorded, sent = batch.present("completion_tokens"), batch.present("prompt_ids")
    found = find(echo > 0, detail, np.zeros_like(echo))
    return RowJudgement(recorded & sent, (found,), missing=~recorded, recorded=recorded)


def judge_completion_count(batch: Batch) -> RowJudgement:
    """Compares the engine's count with the ids that are there."""
    count, lengths = batch.numbers("completion_tokens"), batch.output.lengths
    recorded = batch.present("completion_tokens")

    def detail(row: int) -> str:
        if not lengths[row]:
            return "the row is generated and has no output ids"
        return f"the engine counted {count[row]} output ids, there are {lengths[row]}"

    empty = lengths == 0
    wrong = empty | (recorded & (count != lengths))
    return RowJudgement(recorded | empty, (find(wrong, detail),), missing=~recorded & ~empty, recorded=recorded)


def judge_server_saw_prompt(batch: Batch) -> RowJudgement:
    """Compares the engine's count of prompt ids, and the ids where it returned them, with the prompt that was sent."""
    count, lengths = batch.numbers("server_prompt_tokens"), batch.prompt.lengths
    recorded = batch.present("server_prompt_tokens")

    def detail(row: int) -> str:
        kind = "prompt truncated" if count[row] < lengths[row] else "prompt changed"
        return f"{kind}: {lengths[row]} ids were sent, the engine counted {count[row]}"

    returned = TokenColumn.from_series(batch.column(SERVER_PROMPT_IDS, pl.Null))
    sent = batch.present("prompt_ids")
    departs = np.where(sent & ~returned.null_rows, batch.prompt.first_difference(returned), -1)

    def other_ids(row: int) -> str:
        return f"prompt changed: the ids that the engine returned are not those sent, from index {departs[row]} on"

    miscounted = sent & recorded & (count != lengths)
    found = (find(miscounted, detail), find(~miscounted & (departs >= 0), other_ids))
    known = recorded | ~returned.null_rows
    return RowJudgement(sent & known, found, missing=~known, recorded=known)


def judge_usage_consistent(batch: Batch) -> RowJudgement:
    """Compares the reply's counts with one another."""
    reasoning, cached = batch.present(REASONING_TOKENS), batch.present("cached_tokens")
    counts = {name: np.where(batch.present(name), batch.numbers(name), 0) for name in _COUNTS}
    negative = np.any([count < 0 for count in counts.values()], axis=0)
    completion = np.where(batch.present("completion_tokens"), counts["completion_tokens"], batch.output.lengths)
    seen = batch.present("server_prompt_tokens")
    prompt = np.where(seen, counts["server_prompt_tokens"], batch.prompt.lengths)
    prompt_known = seen | ~batch.prompt.null_rows
    too_much_reasoning = reasoning & ~negative & (counts[REASONING_TOKENS] > completion)
    too_much_cached = cached & ~negative & prompt_known & (counts["cached_tokens"] > prompt)

    def below_zero(row: int) -> str:
        return ", ".join(f"{name} is {count[row]}" for name, count in counts.items() if count[row] < 0)

    def more_reasoning(row: int) -> str:
        return f"{counts[REASONING_TOKENS][row]} tokens of reasoning among {completion[row]} of output"

    def more_cached(row: int) -> str:
        said = f"{counts['cached_tokens'][row]} prompt tokens taken from the cache of {prompt[row]}"
        return f"{said}: some servers count the cache again after they had to start a request over"

    contradiction = batch.column(CONTRADICTION, pl.String)
    contradicted = batch.present(CONTRADICTION)

    def said_twice(row: int) -> str:
        return f"the row contradicts itself: {visible(contradiction[row])}"

    found = (
        find(negative, below_zero),
        find(contradicted & ~negative, said_twice),
        find(too_much_reasoning, more_reasoning),
        find(too_much_cached, more_cached, severity="warning"),
    )
    return RowJudgement(reasoning | (cached & prompt_known) | negative | contradicted, found)


def judge_prompt_as_generated(batch: Batch) -> RowJudgement:
    """Compares the prompt stored with the output with the one that its sample has now, by hash."""
    current = batch.context.current_prompts
    assert current is not None  # noqa: S101 - the law's condition
    now = list(map(current.hashes.get, batch.sample_ids))
    sent = batch.present("prompt_ids")
    stored = [found if there else None for found, there in zip(batch.prompt_hashes, sent.tolist(), strict=True)]
    differs = np.fromiter(map(ne, now, stored), np.bool_, len(batch))

    def detail(row: int) -> str:
        if not sent[row]:
            return "no prompt is stored with the output, tokenized_prompts has one"
        if batch.sample_ids[row] not in current.hashes:
            return "tokenized_prompts has no prompt of this sample any more"
        if now[row] is None:
            return "a prompt was sent, and tokenized_prompts has this sample without one now"
        return "the prompt that was sent is not the one in tokenized_prompts now"

    return RowJudgement(sent | differs, (find(differs, detail),))  # of neither side nothing is said


def judge_ids_in_vocabulary(batch: Batch) -> RowJudgement:
    """Looks for ids that the model cannot emit."""
    size = batch.context.profile.vocab_size
    outside = batch.output_no_token
    outside = outside.where((outside.id < 0) | (outside.id >= size))
    index, count = outside.first(), outside.count()

    def detail(row: int) -> str:
        token = int(batch.output.row(row)[index[row]])
        more = f" and {count[row] - 1} more" if count[row] > 1 else ""
        return f"{shown_id(token)} at index {index[row]}{more} outside the model's vocabulary of {size}"

    return RowJudgement(np.ones(len(batch), np.bool_), (find(index >= 0, detail, index),))


NO_PROMPT_ECHO = RowLaw(
    name="no_prompt_echo",
    definition="The output does not start with the prompt's tail while being longer than the engine's count by just"
    " that much.",
    asset="raw_generations",
    effect="quarantine",
    meaning="Ids of the prompt stand where the target's own should: a drafter would learn to repeat the end of its"
    " prompt.",
    remedy="Use an engine version without the fault (SGLang 0.5.5 or later) and regenerate these samples.",
    causes=("sgl-project/sglang#17240",),
    judge=judge_no_prompt_echo,
    columns=("prompt_ids", "output_ids", "completion_tokens"),
    nothing="no row records both its prompt and completion_tokens",
    missing="completion_tokens is not recorded",
)

COMPLETION_COUNT = RowLaw(
    name="completion_count",
    definition="The engine's completion_tokens is the number of output ids, and not zero.",
    asset="raw_generations",
    effect="quarantine",
    meaning="Ids were lost, added or made again from text on the way, so these are not the target's own tokens.",
    remedy="Take output_ids straight from the engine's raw reply, with no parser or gateway between, and regenerate.",
    causes=("huggingface/trl#5224", "ai-dynamo/dynamo#14302"),
    judge=judge_completion_count,
    columns=("output_ids", "completion_tokens"),
    nothing="no row records completion_tokens",
    missing="completion_tokens is not recorded",
    explained_by_echo=True,
)

SERVER_SAW_PROMPT = RowLaw(
    name="server_saw_prompt",
    definition="The engine counted as many prompt ids as were sent, and returned the same ones where it returned any.",
    asset="raw_generations",
    effect="quarantine",
    meaning="The target answered another prompt than the recorded one, so a drafter would learn from the wrong"
    " context.",
    remedy="Start the server without automatic truncation and send input_ids, never text; then regenerate these"
    " samples.",
    judge=judge_server_saw_prompt,
    columns=("prompt_ids", "server_prompt_tokens"),
    nothing="no row records both its prompt and server_prompt_tokens",
    missing="server_prompt_tokens is not recorded",
)

USAGE_CONSISTENT = RowLaw(
    name="usage_consistent",
    definition="The counts of a reply agree with one another and with its own meta_info: none is negative, reasoning is"
    " not more than the output, and the cache gave no more than the prompt; nor does its row contradict itself.",
    asset="raw_generations",
    effect="quarantine",
    meaning="Counts that contradict one another may be those of another reply; a cache larger than the prompt alone is"
    " a server's slip and leaves the ids as they are.",
    remedy="Take ids and counts from one raw reply; where only the cache is too large, a newer server counts it right.",
    causes=("sgl-project/sglang#11900",),
    judge=judge_usage_consistent,
    columns=("output_ids",),
    nothing="no row records cached_tokens or reasoning_tokens",
)

PROMPT_AS_GENERATED = RowLaw(
    name="prompt_as_generated",
    definition="The prompt stored with an output is the one that tokenized_prompts holds now.",
    asset="raw_generations",
    effect="refuse",
    meaning="The prompts were made anew after generation, so outputs and prompts are no longer of one kind.",
    remedy="Restore the template and tokenizer that were used and tokenize again, or regenerate the partition.",
    judge=judge_prompt_as_generated,
    columns=("prompt_ids",),
    nothing="no row has a prompt, here or in tokenized_prompts",
    unless=needs_current_prompts,
)

IDS_IN_VOCABULARY = RowLaw(
    name="ids_in_vocabulary",
    definition="Every output id is at least 0 and less than the vocabulary size of the model's config.",
    asset="raw_generations",
    effect="quarantine",
    meaning="The target cannot emit such an id, and a trainer reads past its embedding table or crashes.",
    remedy="Find what wrote the ids: they are of another model or damaged; regenerate these samples.",
    judge=judge_ids_in_vocabulary,
    columns=("output_ids",),
    nothing="there is no generated row",
)
