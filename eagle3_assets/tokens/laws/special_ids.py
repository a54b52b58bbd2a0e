"""Laws about structural ids that have no place where they stand: in outputs, and in prompts beside their turns."""

from collections.abc import Mapping

import numpy as np

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Ints, Marks, Mask
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, counted, find, shown_id
from eagle3_assets.tokens.profile import TargetProfile


def judge_no_reserved_ids(batch: Batch) -> RowJudgement:
    """Looks for ids that no output has a use for: those of tokens without one, and those past the last token."""
    padding = _padding(batch.output_no_token, batch.context)
    marks = _together(batch.output_special.of(_useless(batch.context)), padding)
    return _nowhere_in_outputs(batch, marks, "has no use in an output")


def judge_no_role_ids(batch: Batch) -> RowJudgement:
    """Looks for ids that only prompts have."""
    ids = batch.context.profile.prompt_only_ids - batch.context.all_stop_ids
    return _nowhere_in_outputs(
        batch, batch.output_special.of(ids), "stands in prompts only: the target does not write it"
    )


def judge_prompt_well_formed(batch: Batch) -> RowJudgement:
    """Looks for the first id of each prompt that cannot stand there; the suffix is another law's."""
    profile, prompt = batch.context.profile, batch.prompt
    no_token = batch.prompt_no_token
    outside = no_token.where((no_token.id < 0) | (no_token.id >= profile.vocab_size)).first()
    padding = _padding(no_token, batch.context).first()
    unwanted = batch.prompt_special.of(_unwanted(profile)).first()
    empty = np.where(prompt.lengths == 0, 0, -1)
    no_bos, second_bos = _bos_faults(batch)
    begin, end = _turn_faults(batch)
    at = np.zeros(len(batch), np.bool_)

    def label(row: int, index: Ints) -> str:
        return f"{profile.label(int(prompt.row(row)[index[row]]))} at index {index[row]}"

    def not_in_vocabulary(row: int) -> str:
        token = int(prompt.row(row)[outside[row]])
        return f"{shown_id(token)} at index {outside[row]} outside the model's vocabulary of {profile.vocab_size}"

    def without_bos(row: int) -> str:
        first = profile.label(int(prompt.first[row]))
        return f"begins with {first}, not with the template's {profile.label(profile.bos or 0)}"

    found = []
    for index, said in (
        (empty, lambda _: "there are no prompt ids: the target would answer to nothing"),
        (outside, not_in_vocabulary),
        (padding, lambda row: f"{label(row, padding)}{_of_no_token(profile)} has no place in a prompt"),
        (unwanted, lambda row: f"{label(row, unwanted)} has no place in a prompt"),
        (no_bos, without_bos),
        (second_bos, lambda row: f"{label(row, second_bos)} after the prompt's beginning"),
        (begin, lambda row: f"{label(row, begin)} begins a turn before the one before it has ended"),
        (end, lambda row: f"{label(row, end)} ends no turn"),
    ):
        found.append(find((index >= 0) & ~at, said, index))
        at |= index >= 0
    return RowJudgement(np.ones(len(batch), np.bool_), tuple(found))


def _nowhere_in_outputs(batch: Batch, marks: Marks, said: str) -> RowJudgement:
    at_end = marks.index == batch.output.lengths[marks.row] - 1
    marks = marks.where(~(at_end & batch.own_stop(marks.row, marks.id)))
    index, count = marks.first(), marks.count()
    profile = batch.context.profile

    def detail(row: int) -> str:
        token_id = int(batch.output.row(row)[index[row]])
        token = profile.label(token_id)
        after = int(count[row]) - 1
        more = f", {counted(after, 'more such id')} {'follows' if after == 1 else 'follow'}" if after else ""
        of_none = _of_no_token(profile) if token_id >= profile.end_of_tokens else ""
        return f"{token} at index {index[row]}{of_none} {said}{more}"

    return RowJudgement(np.ones(len(batch), np.bool_), (find(index >= 0, detail, index),))


def _padding(no_token: Marks, context: Context) -> Marks:
    """Ids past the tokenizer's last token that are the model's all the same: rows that pad its embedding."""
    inside = (no_token.id >= 0) & (no_token.id < context.profile.vocab_size)
    return no_token.where(inside & ~np.isin(no_token.id, list(context.all_stop_ids)))


def _of_no_token(profile: TargetProfile) -> str:
    return f", which is no token's (the tokenizer has {profile.end_of_tokens:,}, the embedding {profile.vocab_size:,}),"


def _together(one: Marks, other: Marks) -> Marks:
    """The occurrences of both."""
    if not len(other):
        return one
    row, index = np.concatenate((one.row, other.row)), np.concatenate((one.index, other.index))
    order = np.lexsort((index, row))
    return Marks(row[order], index[order], np.concatenate((one.id, other.id))[order], one.rows)


def _useless(context: Context) -> frozenset[int]:
    """Reserved, BOS, PAD, UNK and media ids. A target may end with its PAD, so stop ids are none of them."""
    profile = context.profile
    named = {i for i in (profile.bos, profile.pad, profile.unk) if i is not None}
    return (profile.reserved_ids | profile.media_ids | named) - context.all_stop_ids


def _unwanted(profile: TargetProfile) -> frozenset[int]:
    """Ids that no prompt has, as far as the profile knows what its prompts are made of."""
    used = {*profile.turns, *(i for ends in profile.turns.values() for i in ends)}
    used |= {i for suffix in profile.suffixes.values() for i in suffix}
    named = {profile.pad, profile.unk}
    named |= {profile.bos} if profile.prompt_bos is False else set()
    named |= {profile.eos} if profile.turns else set()
    return (profile.reserved_ids | profile.media_ids | {i for i in named if i is not None}) - used


def _bos_faults(batch: Batch) -> tuple[Ints, Ints]:
    """0 where the BOS id should be first and is not, and the index of each prompt's second one; -1 elsewhere."""
    profile = batch.context.profile
    nowhere = np.full(len(batch), -1, np.int64)
    if not profile.prompt_bos or profile.bos is None:
        return nowhere, nowhere
    marks = batch.prompt_special.of([profile.bos])
    return np.where(batch.prompt.first == profile.bos, -1, 0), marks.where(marks.index > 0).first()


def _turn_faults(batch: Batch) -> tuple[Ints, Ints]:
    """Index of each prompt's first id which begins a turn inside another one, and of the first that ends none.

    The last turn is the target's own: that it is open, and how, is the suffix.
    """
    turns = batch.context.profile.turns
    begins, ends = list(turns), sorted({i for closing in turns.values() for i in closing})
    marks = batch.prompt_special.of((*begins, *ends))
    state = _states(marks, (*begins, *ends))
    first_of_row = np.diff(marks.row, prepend=-1) != 0
    before = np.where(first_of_row, 0, np.roll(state, 1))
    wrong = ~_followers(turns, begins, ends)[before, state]
    is_begin = state <= len(begins)
    return marks.where(wrong & is_begin).first(), marks.where(wrong & ~is_begin).first()


def _states(marks: Marks, ids: tuple[int, ...]) -> Ints:
    """Each occurrence's place among ``ids``, counted from 1."""
    state = np.zeros(len(marks), np.int64)
    for number, token_id in enumerate(ids, start=1):
        state[marks.id == token_id] = number
    return state


def _followers(turns: Mapping[int, frozenset[int]], begins: list[int], ends: list[int]) -> Mask:
    """Bool ``[from, to]``: which begin (numbered from 1) or end may follow which; 0 is the prompt's beginning."""
    size = 1 + len(begins) + len(ends)
    allowed = np.zeros((size, size), np.bool_)
    begin_places = slice(1, 1 + len(begins))
    allowed[0, begin_places] = True
    allowed[1 + len(begins) :, begin_places] = True
    for place, begin in enumerate(begins, start=1):
        closing = [1 + len(begins) + ends.index(i) for i in turns[begin]]
        if closing:
            allowed[place, closing] = True
        else:
            allowed[place, begin_places] = True
    return allowed


def _describes_no_useless(context: Context) -> str | None:
    if not _useless(context) and context.profile.end_of_tokens == context.profile.vocab_size:
        return f"the profile {context.profile.name!r} describes no reserved, BOS, PAD, UNK or media ids"
    return None


def _describes_no_roles(context: Context) -> str | None:
    if not context.profile.prompt_only_ids:
        return f"the profile {context.profile.name!r} describes no ids that only prompts have"
    return None


def _undescribed_of_prompts(context: Context) -> str | None:
    profile = context.profile
    lacking = [
        what
        for what, known in (
            ("turns", profile.turns),
            ("whether prompts begin with BOS", profile.bos is None or profile.prompt_bos is not None),
        )
        if not known
    ]
    return f"the profile {profile.name!r} does not describe {' and '.join(lacking)}" if lacking else None


NO_RESERVED_IDS = RowLaw(
    name="no_reserved_ids",
    definition="An output has no reserved, BOS, PAD, UNK or media id, unless the target stops at it, and no id past the"
    " tokenizer's last token.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="Such ids are padding, damage or the mark of another tokenizer: the target was never trained to write"
    " them.",
    remedy="Look for padding that was stored with outputs and for bad logits, and regenerate; if this target does so"
    " itself, lower the law to warn.",
    judge=judge_no_reserved_ids,
    columns=("output_ids",),
    nothing="there is no generated row",
    unless=_describes_no_useless,
    explained_by_echo=True,
)

NO_ROLE_IDS = RowLaw(
    name="no_role_ids",
    definition="An output has no id that the profile says only prompts have.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="The prompt's markup stands in the output, or the target wrote on as another role past the end of its"
    " turn.",
    remedy="Check that the stop set is complete and that nothing adds the prompt to outputs; if this target does so"
    " itself, lower the law to warn.",
    causes=("sgl-project/sglang#17240",),
    judge=judge_no_role_ids,
    columns=("output_ids",),
    nothing="there is no generated row",
    unless=_describes_no_roles,
    explained_by_echo=True,
)

PROMPT_WELL_FORMED = RowLaw(
    name="prompt_well_formed",
    definition="On ids alone: a prompt is not empty, lies in the vocabulary, has BOS only where the template puts it"
    " and no PAD, UNK, media or reserved id nor one past the tokenizer's last token, and its turns are as the profile"
    " describes them.",
    asset="tokenized_prompts",
    effect="quarantine",
    meaning="The target would read another conversation than the one that was meant, or ids that it was never trained"
    " on.",
    remedy="Look for structural tokens typed by users, a tokenizer that adds BOS again, and a chat template of another"
    " model; correct the profile's turns with target.profile_overrides if the template is right.",
    causes=("huggingface/transformers#47822",),
    judge=judge_prompt_well_formed,
    columns=("prompt_ids",),
    nothing="there is no row with prompt ids",
    partly=_undescribed_of_prompts,
)
