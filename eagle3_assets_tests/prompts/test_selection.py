"""Which rows of a source a partition takes, and that every row is accounted for, whatever stands where."""

import gzip
import json
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_assets.config import Dataset, SourceFormat
from eagle3_assets.partitions import Partition, dataset_partitions
from eagle3_assets.prompts.formats import FORMAT_NAMES
from eagle3_assets.prompts.rows import NotedRow, PromptRows, PromptSourceError, read_partition
from eagle3_assets.prompts.sampling import Smallest

TRIAL = 5


def chat(identifier: str | None, roles: str = "u", text: str = "") -> dict[str, Any]:
    names = {"u": "user", "a": "assistant", "s": "system"}
    messages = [{"role": names[role], "content": f"{text or identifier} {i}"} for i, role in enumerate(roles)]
    return {"messages": messages} | ({"id": identifier} if identifier else {})


def write(folder: Path, files: dict[str, list[Any]]) -> Path:
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = (row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
        (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def partitions(place: Path, **settings: Any) -> list[Partition]:
    return dataset_partitions(Dataset(name="d", source=str(place), **settings))


def taken(place: Path, **settings: Any) -> dict[str, PromptRows]:
    """What each partition takes; nowhere is a row without account."""
    found = {p.key: read_partition(p, TRIAL) for p in partitions(place, **settings)}
    for key, one in found.items():
        assert one.accounts.unaccounted == 0, (key, one.accounts)
        # Only our own prompts have several rows of one conversation.
        several = "prompts" in {file.format for file in one.files}
        assert several or one.accounts.used == one.rows["conversation_id"].n_unique()
        assert one.rows["sample_id"].is_unique().all()
    return found


def ids(found: PromptRows) -> list[str]:
    return found.rows["sample_id"].to_list()


def test_the_formats_of_the_config_are_those_that_can_be_read() -> None:
    assert set(get_args(SourceFormat)) == {"auto", *FORMAT_NAMES}


def test_skip_and_limit_count_rows_of_the_source_good_or_bad(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [chat("a0"), b"{bad", chat("a2"), b"", chat("a4")], "b.jsonl": [chat("b0"), b"{"]})
    [one, _] = taken(tmp_path, skip=1, limit=3).values()
    assert ids(one) == ["a2:1:0", "a4:1:0"]
    assert [(r.source, r.row) for r in one.refused] == [("a.jsonl", 2)]
    assert (one.accounts.rows, one.accounts.skipped, one.accounts.refused) == (4, 1, 1)
    # What lies behind the limit is not read, and has no hash.
    assert [file.sha256 is None for file in one.files] == [False, True]
    [all_, _] = taken(tmp_path, skip=4).values()
    assert ids(all_) == ["b0:1:0"]


@pytest.mark.parametrize(("sample", "about"), [(0.25, range(70, 130)), (100, range(100, 101))])
def test_a_sample_is_chosen_by_ids_alone(tmp_path: Path, sample: float, about: range) -> None:
    rows = [chat(f"c{i}") for i in range(400)]
    place = write(tmp_path / "one", {"a.jsonl": rows})
    shards = [p for key, p in taken(place, sample=sample, shards=3).items() if "trial" not in key]
    chosen = {i for shard in shards for i in ids(shard)}
    assert len(chosen) in about
    assert sum(s.accounts.left_out for s in shards) + len(chosen) == len(rows)
    other = write(tmp_path / "other", {"z.jsonl": rows[::-2], "a.jsonl": rows[::2]})
    whole = taken(other, sample=sample)
    assert set(ids(whole["d"])) == chosen
    assert set(ids(whole["d-trial"])) <= chosen
    assert len(whole["d-trial"].rows) == TRIAL
    seeded = taken(place, sample=sample, sample_seed=1)["d"]
    assert set(ids(seeded)) != chosen


def test_a_longer_source_takes_nobody_out_of_a_share(tmp_path: Path) -> None:
    rows = [chat(f"c{i}") for i in range(300)]
    before = ids(taken(write(tmp_path, {"a.jsonl": rows[:150]}), sample=0.3)["d"])
    after = ids(taken(write(tmp_path, {"a.jsonl": rows}), sample=0.3)["d"])
    assert [i for i in after if i in set(before)] == before
    assert len(after) > len(before)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 30), max_size=60), st.integers(1, 20))
def test_the_smallest_are_found_and_none_of_them_turned_away(ranks: list[int], n: int) -> None:
    smallest = Smallest(n)
    added = [rank for rank in ranks if smallest.add(rank) and smallest.bound >= 0]
    expected = sorted(set(ranks))[:n]
    assert sorted({rank for rank in added if rank <= smallest.bound}) == expected


def test_rows_that_are_let_go_on_the_way_are_accounted_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle3_assets.prompts.rows.ROW_GROUP_ROWS", 8)
    monkeypatch.setattr("eagle3_assets.prompts.sampling._LEAST_CLEARED", 8)
    rows = [chat(f"c{i % 250}") for i in range(300)]  # some ids come again, when their first row may be gone
    place = write(tmp_path, {"a.jsonl": rows})
    for settings_ in ({"sample": 20}, {}, {"sample": 20, "shards": 2}, {"sample": 0.1}):
        found = taken(place, **settings_)
        assert len(found["d-trial"].rows) == TRIAL
        if settings_.get("sample") == 20:
            assert sum(len(one.rows) for key, one in found.items() if "trial" not in key) == 20


ROWS = st.lists(
    st.tuples(st.sampled_from(["u", "su", "ua", "uaua", "uau", "a"]), st.booleans(), st.integers(0, 60)),
    min_size=1, max_size=40,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(ROWS, st.randoms(use_true_random=False), st.sampled_from(["last", "first", "all"]), st.integers(1, 4))
def test_order_files_and_more_rows_change_no_id_and_no_shard(
    tmp_path: Path, made: list[tuple[str, bool, int]], random: Any, turns: str, shards: int
) -> None:
    # Rows with the same id are the same row here: of two different ones the first would count.
    rows = [chat(f"n{n}-{roles}" if named else None, roles, f"{n}") for roles, named, n in made]
    before = taken(write(tmp_path / "one", {"a.jsonl": rows}), turns=turns, shards=shards)

    shuffled = [*rows, *(chat(f"more{i}") for i in range(5))]
    random.shuffle(shuffled)
    cut = random.randrange(len(shuffled) + 1)
    place = tmp_path / "two"
    (place / "x").mkdir(parents=True, exist_ok=True)
    (place / "b.json").write_text(json.dumps(shuffled[:cut]), encoding="utf-8")
    (place / "x" / "a.jsonl.gz").write_bytes(
        gzip.compress(b"".join(json.dumps(r).encode() + b"\n" for r in shuffled[cut:]))
    )
    after = taken(place, turns=turns, shards=shards)
    for key, one in before.items():
        if not key.endswith("-trial"):
            prompts = {row["sample_id"]: row["messages"] for row in one.rows.iter_rows(named=True)}
            now = {row["sample_id"]: row["messages"] for row in after[key].rows.iter_rows(named=True)}
            assert {sample: now[sample] for sample in prompts} == prompts


def test_a_turn_keeps_its_id_whichever_turns_are_generated_and_whatever_is_put_first(tmp_path: Path) -> None:
    place = write(tmp_path, {"a.jsonl": [chat("c", "uaua")]})
    assert ids(taken(place)["d"]) == ["c:3:0"]
    assert ids(taken(place, turns="first")["d"]) == ["c:1:0"]
    every = taken(place, turns="all", samples_per_prompt=2, system_prompt="Be brief.")["d"].rows
    assert every["sample_id"].to_list() == ["c:1:0", "c:1:1", "c:3:0", "c:3:1"]
    assert every["turn"].to_list() == [1, 1, 3, 3]
    messages = [json.loads(text) for text in every["messages"]]
    assert [[m["role"][0] for m in one] for one in messages] == [["s", "u"]] * 2 + [["s", "u", "a", "u"]] * 2
    assert messages[0][0]["content"] == "Be brief."


def test_of_two_rows_with_one_id_the_second_is_refused_by_name(tmp_path: Path) -> None:
    place = write(
        tmp_path, {"a.jsonl": [chat("x"), chat(None, text="t")], "b.jsonl": [chat(None, "ua", "t"), chat("x")]}
    )
    told: list[NotedRow] = []
    found = read_partition(partitions(place)[0], TRIAL, told.append)
    assert list(found.refused) == told
    assert [str(refused) for refused in told] == [
        "b.jsonl:1: the same conversation is a.jsonl:2's already",
        "b.jsonl:2: its id 'x' is a.jsonl:1's already",
    ]
    assert [refused.conversation_id for refused in told] == [None, "x"]


def test_only_the_first_refused_rows_are_kept_and_all_are_told(tmp_path: Path) -> None:
    place = write(tmp_path, {"a.jsonl": [chat("x"), *[b"{"] * 500]})
    told: list[NotedRow] = []
    found = read_partition(partitions(place)[0], TRIAL, told.append)
    assert (len(told), found.accounts.refused, len(found.refused)) == (500, 500, 20)


def test_a_file_in_no_known_format_is_an_error_and_one_of_nothing_but_faults_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(tmp_path, {"a.jsonl": [b"{", b"}"], "b.jsonl": [chat("x")]})
    found = taken(place)["d"]
    assert [file.format for file in found.files] == [None, "openai"]
    assert found.accounts.refused == 2
    write(tmp_path, {"b.jsonl": [{"colour": "red"}]})
    with pytest.raises(
        PromptSourceError, match=r"b\.jsonl: its format is not recognised .*`, or the files with a glob"
    ):
        taken(place)
    monkeypatch.setattr("eagle3_assets.prompts.rows.HOPELESS_ROWS", 3)
    write(tmp_path, {"a.jsonl": [b"{"] * 3})
    with pytest.raises(PromptSourceError, match=r"a\.jsonl: none of its first 3 rows can be read; is not JSON"):
        taken(place)


def test_a_value_of_parquet_that_json_has_not_is_refused_by_row(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}
    rows = [{"id": str(i), "messages": [{"role": "user", "content": "x"}, call]} for i in range(3)]
    broken = json.loads(json.dumps(rows[1]))
    broken["messages"][1]["tool_calls"][0]["function"]["arguments"]["x"] = float("nan")
    broken["messages"].append({"role": "user", "content": "and?", "tool_calls": None})
    pl.DataFrame([rows[0], broken, rows[2]]).write_parquet(tmp_path / "a.parquet")
    found = taken(tmp_path)["d"]
    assert found.rows["source_row"].to_list() == [1, 3]
    assert "holds nan, which JSON cannot say" in found.refused[0].reason


def test_our_own_prompts_are_read_again_turn_by_turn(tmp_path: Path) -> None:
    place = write(tmp_path / "chats", {"a.jsonl": [chat(f"c{i}", "suauaua") for i in range(30)]})
    made = taken(place, turns="all")["d"].rows
    (tmp_path / "ours").mkdir()
    made.write_parquet(tmp_path / "ours" / "d.parquet")
    for settings_ in ({}, {"shards": 3}, {"sample": 7}):
        found = taken(tmp_path / "ours", **settings_)
        rows = pl.concat([one.rows for key, one in found.items() if "trial" not in key]).sort("source_row")
        assert not any(one.refused for one in found.values())
        assert {file.format for file in found["d-trial"].files} == {"prompts"}
        expected = made.filter(pl.col("conversation_id").is_in(rows["conversation_id"].to_list()))
        same = ("sample_id", "messages", "tools")
        assert rows.select(same).equals(expected.select(same))
        assert rows["conversation_id"].n_unique() == settings_.get("sample", 30)
        assert found["d-trial"].rows["conversation_id"].n_unique() == TRIAL


def test_a_row_that_was_not_read_as_it_may_be_meant_is_used_and_named(tmp_path: Path) -> None:
    rows = [{**chat("x", "uau"), "num_tokens": 5, "source": "s"}, {**chat("y", "uau"), "num_tokens": 5, "source": "s"}]
    rows[1]["messages"][1]["content"] = "<think>never closed"
    found = taken(write(tmp_path, {"a.jsonl": rows}), format="mixture-of-thoughts")["d"]
    assert (found.remarks, found.accounts.used, found.accounts.refused) == (1, 2, 0)
    [remark] = found.remarked
    assert str(remark) == "a.jsonl:2: " + remark.reason
    assert "the markup of its reasoning is not whole" in remark.reason


def test_keys_that_are_not_read_are_counted_by_their_names(tmp_path: Path) -> None:
    rows = [{**chat(f"c{i}", "ua"), "intent": "x", f"own\u202e{i:03}": 1, "note": "n" if i else ""} for i in range(300)]
    found = taken(write(tmp_path, {"a.jsonl": rows}), shards=2)
    both = [found[key].unread_keys for key in found if "trial" not in key]
    assert sum(keys["intent"] for keys in both) == 300
    assert sum(keys["note"] for keys in both) == 299
    whole = taken(tmp_path)["d"].unread_keys
    assert list(whole)[:2] == ["intent", "note"]
    assert (len(whole), whole["own<U+202E>000"], whole["(other keys)"]) == (101, 1, 202)
    assert taken(tmp_path)["d"].unread_said.startswith("intent (300), note (299), ")


def test_keys_that_the_dataset_ignores_are_not_looked_at(tmp_path: Path) -> None:
    beside = {
        "story": "Once",
        "metadata": {"system_prompt": "x", "of": 1},
        "conversations": [{"from": "human", "value": "x"}],
    }
    place = write(tmp_path, {"a.jsonl": [{**chat(f"c{i}", "ua"), **beside} for i in range(4)]})
    assert taken(place)["d"].accounts.refused == 4
    found = taken(place, ignore_keys=["metadata.system_prompt", "story", "conversations"])["d"]
    assert (found.accounts.used, found.accounts.refused, found.unread_keys) == (4, 0, {"metadata.of": 4})
    # They do not tell the format either.
    found = taken(place, ignore_keys=["metadata", "story", "messages"], sample=1.0)["d"]
    assert {file.format for file in found.files} == {"sharegpt"}


def test_our_own_prompts_keep_their_turns_whatever_the_settings(tmp_path: Path) -> None:
    place = write(tmp_path / "chats", {"a.jsonl": [chat("a", "uauau"), chat("b", "ua")]})
    (tmp_path / "ours").mkdir()
    ours = tmp_path / "ours" / "d.parquet"
    made = taken(place, turns="all", samples_per_prompt=2, system_prompt="Be brief.")["d"].rows
    made.write_parquet(ours)
    once = ["a:1:0", "a:3:0", "a:5:0", "b:1:0"]
    for turns in ("all", "first", "last"):
        found = taken(ours, turns=turns)["d"]
        assert ids(found) == once
        assert found.rows["messages"].to_list() == made["messages"].to_list()[::2]
        assert (found.accounts.used, found.accounts.further_samples, found.accounts.refused) == (4, 4, 0)
    assert ids(taken(ours, samples_per_prompt=2)["d"]) == made["sample_id"].to_list()
    # In any order, and where only a further sample is left.
    made.reverse().write_parquet(ours)
    assert sorted(ids(taken(ours)["d"])) == once
    made[1:2].write_parquet(ours)
    assert ids(taken(ours)["d"]) == ["a:1:0"]


def test_of_our_own_prompts_what_is_no_further_sample_is_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "chats", {"a.jsonl": [chat("a", "uau")]})
    made = taken(place, turns="all")["d"].rows
    other = made[:1].with_columns(
        sample_id=pl.lit("a:1:1"),
        sample_index=pl.lit(1, pl.Int32),
        messages=pl.lit('[{"role":"user","content":"other"}]'),
    )
    made.vstack(made[:1]).vstack(other).write_parquet(tmp_path / "chats" / "b.parquet")
    found = taken(tmp_path / "chats" / "b.parquet")["d"]
    assert ids(found) == ["a:1:0", "a:3:0"]
    assert [str(row) for row in found.refused] == [
        "b.parquet:3: its id 'a' is b.parquet:1's already",
        "b.parquet:4: its id 'a' is b.parquet:1's already",
    ]
    # A conversation comes from one kind of row only: its turns would be there twice.
    found = taken(tmp_path / "chats")["d"]
    assert (ids(found), found.accounts.refused) == (["a:3:0"], 4)
