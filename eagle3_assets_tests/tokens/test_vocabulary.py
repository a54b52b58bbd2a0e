"""The drafter's vocabulary, recounted one token at a time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.tokens.vocabulary import (
    DraftVocabulary,
    VocabularyError,
    choose,
    count_ids,
    coverage,
    marked_sizes,
    vocabulary_verdict,
)

VOCAB = 12
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=60)


def of(ids: list[int]) -> np.ndarray:
    return np.array(ids, np.int32)


@given(st.lists(IDS, min_size=1, max_size=4).filter(any), st.sets(st.integers(0, VOCAB - 1), max_size=4), st.data())
def test_a_recount_by_hand_chooses_the_same(parts: list[list[int]], structural: set[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(max(1, len(structural)), VOCAB + 3))
    together = [i for part in parts for i in part]
    made = choose(sum(count_ids(of(part), VOCAB) for part in parts), structural, size)  # type: ignore[arg-type] # arrays
    counted = Counter(together)
    assert dict(enumerate(made.counts.tolist())) == {i: counted[i] for i in range(VOCAB)}
    ranked = sorted(range(VOCAB), key=lambda i: (i not in structural, -counted[i], i))
    assert made.order.tolist() == ranked
    assert made.size == min(size, VOCAB)
    assert made.ids.tolist() == sorted(ranked[: made.size])
    assert [draft + offset for draft, offset in enumerate(made.d2t.tolist())] == made.ids.tolist()
    assert np.flatnonzero(made.t2d).tolist() == made.ids.tolist()
    assert structural <= set(made.ids.tolist())
    assert made.tokens == len(together)
    assert made.seen == len(counted)
    assert sum(made.unseen) == sum(counted[i] == 0 for i in made.ids.tolist())
    assert made.unseen[0] == sum(counted[i] == 0 for i in structural)
    for k in range(VOCAB + 1):
        assert made.covered(made.counts)[k] == sum(counted[i] for i in ranked[:k])


@given(IDS.filter(bool))
def test_beyond_the_knee_an_id_adds_no_more_than_the_average_seen_one(ids: list[int]) -> None:
    made = choose(count_ids(of(ids), VOCAB), (), VOCAB)
    ordered, mean = sorted(Counter(ids).values(), reverse=True), len(ids) / len(set(ids))
    assert all(count > mean for count in ordered[: made.knee]) or (made.knee == 1 and len(set(ordered)) == 1)
    assert all(count <= mean for count in ordered[made.knee :])


def test_a_table_has_the_sizes_that_a_person_asks_for() -> None:
    counts = np.zeros(5_000, np.int64)
    counts[:3_000] = 1
    counts[:10] = 10_000
    made = choose(counts, {4_999}, 2_500)
    marks = marked_sizes(made)
    assert marks.keys() >= {1_000, 2_000, 4_000}
    assert marks[11] == "knee"
    assert marks[2_500] == "chosen"
    assert marks[3_001] == "all"  # that were seen, and the structural one that was not
    assert marks[5_000] == "the target's own"
    part = np.zeros(5_000, np.int64)
    part[2_999] = 4
    rows = {(row.dataset, row.size): row for row in coverage(made, [("rare", part)])}
    assert rows[None, 11].covered == 100_000
    assert rows["rare", 2_500].share == 0
    assert rows["rare", 5_000].share == 1
    assert vocabulary_verdict(made) == (
        "2,500 of 5,000 ids cover 99.51% of 102,990 tokens; 3,000 ids are seen; the knee is at 11 (97.10%);"
        " 1 structural ids were never seen and are in"
    )


def test_the_sizes_for_a_share_are_the_least_that_have_it() -> None:
    made = choose(np.array([990, 9, 1, 0], np.int64), (), 2)
    assert (made.size_for(0.99), made.size_for(0.999), made.size_for(1.0)) == (1, 2, 3)


def test_what_was_not_seen_is_filled_up_with_the_lowest_ids() -> None:
    made = choose(count_ids(of([7, 7, 3]), VOCAB), {9}, 6)
    assert made.ids.tolist() == [0, 1, 2, 3, 7, 9]
    assert made.unseen == (1, 3)
    assert "3 of the lowest ids were never seen and fill it up" in vocabulary_verdict(made)


def test_what_cannot_be_chosen_says_why() -> None:
    with pytest.raises(VocabularyError, match="no token is trained on"):
        choose(count_ids(of([]), VOCAB), {1}, 3)
    with pytest.raises(VocabularyError, match="of 1 has no room for the 2 structural ids"):
        choose(count_ids(of([1]), VOCAB), {1, 2}, 1)
    for strange in (-1, VOCAB):
        with pytest.raises(VocabularyError, match=f"id {strange} is none of the 12"):
            count_ids(of([1, strange]), VOCAB)


def test_more_than_the_target_has_is_all_that_it_has() -> None:
    made = choose(count_ids(of([5]), VOCAB), (), 100)
    assert isinstance(made, DraftVocabulary)
    assert made.size == VOCAB
    assert not made.d2t.any()
    assert made.t2d.all()
