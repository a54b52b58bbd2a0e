"""Partition keys, and the promise that a row never moves."""

from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.config import Dataset
from eagle3_assets.partitions import dataset_partitions, shard_of, stable_rank


def test_keys_of_one_shard_and_of_many() -> None:
    assert [p.key for p in dataset_partitions(Dataset(name="a", source="s"))] == ["a", "a-trial"]
    many = [p.key for p in dataset_partitions(Dataset(name="a", source="s", shards=12))]
    assert many[0] == "a-00of12"
    assert many[11] == "a-11of12"
    assert many[12] == "a-trial"
    assert many[:12] == sorted(many[:12])
    assert dataset_partitions(Dataset(name="a", source="s", shards=1000))[7].key == "a-0007of1000"


def test_a_row_is_where_it_always_was() -> None:
    # Fixed values: another hash would send generated rows to other partitions.
    assert [shard_of(stable_rank(f"conversation-{i}"), 16) for i in range(6)] == [12, 13, 6, 8, 14, 13]


@given(st.text(min_size=1), st.integers(1, 50))
def test_every_row_is_in_exactly_one_shard_and_may_be_in_the_trial(conversation_id: str, shards: int) -> None:
    text = conversation_id.encode("utf-8", "ignore").decode() or "x"
    partitions = dataset_partitions(Dataset(name="a", source="s", shards=shards))
    assert sum(p.holds(stable_rank(text)) for p in partitions if not p.trial) == 1
    assert partitions[-1].holds(stable_rank(text))
