"""Source files to prompt rows: every line accounted for, none shifting another."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import transformers  # noqa: TID253 - tests need not load fast

from eagle3_assets.config import Dataset
from eagle3_assets.contract import PROMPTS
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.prompts.render import tokenize_rows
from eagle3_assets.prompts.rows import PromptSourceError, read_partition
from eagle3_assets_tests.conftest import DEMO


def chat(identifier: Any, text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"id": identifier, "messages": [{"role": "user", "content": text}], **more}


def source(tmp_path: Path, *lines: dict[str, Any] | bytes, **dataset: Any) -> Dataset:
    path = tmp_path / "source.jsonl"
    path.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    return Dataset(name="d", source=str(path), **dataset)


def read(dataset: Dataset, number: int = 0, trial_rows: int = 20) -> Any:
    return read_partition(dataset_partitions(dataset)[number], trial_rows)


def test_rows_have_the_contract_and_ids_that_last(tmp_path: Path) -> None:
    found = read(source(tmp_path, chat("a"), chat(7), samples_per_prompt=2))
    assert found.rows.schema == PROMPTS
    assert found.rows["sample_id"].to_list() == ["a:1:0", "a:1:1", "7:1:0", "7:1:1"]
    assert found.rows["source_row"].to_list() == [1, 1, 2, 2]
    assert found.rows["source"].unique().to_list() == ["source.jsonl"]


def test_whole_numbers_that_came_as_floats_are_ids(tmp_path: Path) -> None:
    found = read(source(tmp_path, chat(1.0), chat(2), chat(2.0), chat(0.5), chat(1e300)))
    assert found.rows["conversation_id"].to_list() == ["1", "2"]
    assert [row.reason for row in found.refused] == [
        "its id '2' is source.jsonl:2's already",
        *[f"`id` must be a string or a whole number, not {given}" for given in ("0.5", "1e+300")],
    ]


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_times_that_differ_by_nanoseconds_are_ids_that_differ(tmp_path: Path, zone: str | None) -> None:
    """Python's own times end at microseconds, and the ids of both rows would be one."""
    one = 1_740_832_200_000_000_000
    times = pl.Series("id", [one, one + 1_000, one + 1_001, -1], pl.Datetime("ns")).dt.replace_time_zone("UTC")
    times = times.dt.convert_time_zone(zone) if zone else times.dt.replace_time_zone(None)
    rows = pl.DataFrame({"id": times, "prompt": ["a", "b", "c", "d"]})
    rows.write_parquet(tmp_path / "a.parquet")
    found = read(Dataset(name="d", source=str(tmp_path / "a.parquet")))
    suffix = "+00:00" if zone else ""
    assert found.refused == ()
    assert found.rows["conversation_id"].to_list() == [
        f"{time}{suffix}"
        for time in (
            "2025-03-01T12:30:00",
            "2025-03-01T12:30:00.000001",
            "2025-03-01T12:30:00.000001001",
            "1969-12-31T23:59:59.999999999",
        )
    ]


BAD: list[tuple[bytes, str]] = [
    (b"{", "is not JSON"),
    (b'{"id": "x", "messages": [{"role": "user", "content": NaN}]}', "NaN is no JSON number"),
    (b'{"id": "x", "id": "y", "messages": []}', "has the key 'id' twice"),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "half of a surrogate pair"),
    (b"\xff\xfe", "is not UTF-8"),
    (b"[1]", "the row is a list"),
    (b'{"messages": []}', "`messages` must be a non-empty list, not an empty list"),
    (b'{"messages": [{"role": "boss", "content": "x"}]}', "`messages[0].role` is 'boss'"),
    (
        b'{"messages": [{"role": "' + b"x" * 5000 + b'", "content": "x"}]}',
        "`messages[0].role` is '" + "x" * 56 + "...; known: system",
    ),
    (b'{"messages": [{"role": "user"}]}', "`messages[0].content` is missing"),
    (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "is a part of type 'image_url'"),
    (b'{"messages": [{"role": "system", "content": "x"}]}', "no user message"),
    (b'{"messages": [{"role": "assistant", "content": "x"}]}', "no user message"),
    (b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"description": "f"}]}', "`tools[0]` must be"),
    (b'{"id": true, "messages": [{"role": "user", "content": "x"}]}', "`id` must be a string or a whole number"),
    (b'{"id": "a", "messages": [{"role": "user", "content": "again"}]}', "its id 'a' is source.jsonl:1's already"),
    (b"[" * 5000, "nested too deeply"),
]


@pytest.mark.parametrize(("line", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_line_is_named_and_shifts_nothing(tmp_path: Path, line: bytes, reason: str) -> None:
    found = read(source(tmp_path, chat("a"), line, b"", chat("b")))
    assert found.rows["sample_id"].to_list() == ["a:1:0", "b:1:0"]
    assert found.rows["source_row"].to_list() == [1, 4]
    [refused] = found.refused
    assert (refused.row, refused.source) == (2, "source.jsonl")
    assert reason in refused.reason
    assert found.accounts.rows == 3
    assert found.accounts.unaccounted == 0


def call(arguments: Any, content: str | None = None) -> dict[str, Any]:
    calls = [{"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"inner": schema}}
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


USER = {"role": "user", "content": "x"}
ODD: dict[str, tuple[dict[str, Any], str | None]] = {
    "id is a number": ({"id": 7, "messages": [USER]}, None),
    "id is zero": ({"id": 0, "messages": [USER]}, None),
    "no id": ({"messages": [USER]}, None),
    "empty id": ({"id": " ", "messages": [USER]}, "`id` must be printable text"),
    "id with a line end": ({"id": "a\nb", "messages": [USER]}, "`id` must be printable text"),
    "a long id": ({"id": "a" * 500, "messages": [USER]}, None),
    "an id too long": ({"id": "a" * 501, "messages": [USER]}, "`id` has 501 characters, more than 500"),
    "id is a list": ({"id": [1], "messages": [USER]}, "`id` must be a string or a whole number"),
    "arguments as an object": ({"messages": [USER, call({"b": 1, "a": [2]}), USER]}, None),
    "arguments as text": ({"messages": [USER, call('{"b": 1}'), USER]}, None),
    "null content beside calls": ({"messages": [USER, call("{}", None), USER]}, None),
    "null content alone": ({"messages": [USER, {"role": "assistant", "content": None}, USER]}, "is missing"),
    "assistant first": ({"messages": [{"role": "assistant", "content": "hi"}, USER]}, None),
    "two user turns in a row": ({"messages": [USER, USER]}, None),
    "only a system turn": ({"messages": [{"role": "system", "content": "x"}]}, "no user message"),
    "empty conversation": ({"messages": []}, "must be a non-empty list"),
    "a message of 1 MB": ({"messages": [{"role": "user", "content": "long " * 200_000}]}, None),
    "a deep schema": ({"messages": [USER], "tools": [nested(60)]}, None),
    "a schema too deep": ({"messages": [USER], "tools": [nested(120)]}, "nested too deeply"),
    "control characters": ({"messages": [{"role": "user", "content": "\u0000\u202e\x1b[31m"}]}, None),
}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("place", ["s.jsonl", "s.json"])
def test_an_odd_row_is_taken_or_refused_by_name_and_shifts_nothing(case: str, place: str, tmp_path: Path) -> None:
    row, refusal = ODD[case]
    rows = [chat("first"), row, chat("last")]
    path = tmp_path / place
    path.write_text("\n".join(map(json.dumps, rows)) if place == "s.jsonl" else json.dumps(rows), encoding="utf-8")
    found = read(Dataset(name="d", source=str(path)))
    numbers = dict(found.rows.select("source_row", "conversation_id").iter_rows())
    assert (numbers[1], numbers[3]) == ("first", "last")
    assert found.accounts.unaccounted == 0
    if refusal is None:
        assert not found.refused
        assert str(row.get("id", numbers[2])) == numbers[2]
        said = json.loads(found.rows["messages"][1])
        assert [message["role"] for message in said] == [message["role"] for message in row["messages"]]
        assert [message["content"] for message in said] == [message["content"] or "" for message in row["messages"]]
        for message, given in zip(said, row["messages"], strict=True):
            arguments = [made["function"]["arguments"] for made in given.get("tool_calls", ())]
            read_as = [made["function"]["arguments"] for made in message.get("tool_calls", ())]
            assert read_as == [json.loads(text) if isinstance(text, str) else text for text in arguments]
    else:
        [refused] = found.refused
        assert refused.row == 2
        assert refusal in refused.reason


def test_bom_and_crlf_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps(chat("a")).encode() + b"\r\n" + json.dumps(chat("b")).encode() + b"\r\n"
    )
    found = read(Dataset(name="d", source=str(path)))
    assert found.rows["conversation_id"].to_list() == ["a", "b"]
    assert not found.refused


def test_nulls_are_absent_and_a_final_answer_is_generated_anew(tmp_path: Path) -> None:
    row = {
        "id": "a",
        "tools": None,
        "messages": [
            {"role": "user", "content": "x", "name": None},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": None,
                "tool_calls": [{"id": "functions.f:0", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "content": "result", "tool_call_id": "functions.f:0"},
            {"role": "assistant", "content": "the answer in the source"},
        ],
    }
    found = read(source(tmp_path, row))
    messages = json.loads(found.rows["messages"][0])
    assert messages == [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": {}}}],
        },
        {"role": "tool", "content": "result", "tool_call_id": "functions.f:0"},
    ]
    assert found.rows["tools"][0] is None
    assert found.rows["turn"][0] == 3


# Like Kimi's: what is not there is nothing, what is null would be the word None.
THINKING_TEMPLATE = (
    "{%- for m in messages -%}<|im_user|>{{ m.role }}<|im_middle|>"
    "{%- if m.role == 'assistant' -%}<think>{{ m.get('reasoning_content', '') }}</think>{%- endif -%}"
    "{{ m.get('content', '') }}"
    "{%- for c in m.get('tool_calls', []) -%}{{ c.function.arguments | tojson }}{%- endfor -%}"
    "<|im_end|>{%- endfor -%}"
)


@pytest.mark.parametrize("nulls", [{}, {"reasoning_content": None}, {"reasoning": None, "content": None}])
def test_no_null_reaches_a_template_as_the_word_none(nulls: dict[str, Any], tmp_path: Path) -> None:
    call = {"id": "functions.f:0", "function": {"name": "f", "arguments": "{}"}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]} | nulls
    result = {"role": "tool", "content": "cold", "tool_call_id": call["id"]}
    row = {"id": "a", "messages": [{"role": "user", "content": "x", "name": None}, turn, result]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO / "model")
    made = tokenize_rows(
        tokenizer, read(source(tmp_path, row)).rows, thinking=True, chat_template=THINKING_TEMPLATE, call_id=None
    )
    assert tokenizer.decode(made["prompt_ids"][0].to_list(), skip_special_tokens=False) == (
        "<|im_user|>user<|im_middle|>x<|im_end|><|im_user|>assistant<|im_middle|><think></think>{}<|im_end|>"
        "<|im_user|>tool<|im_middle|>cold<|im_end|>"
    )


def test_the_first_field_with_a_value_counts(tmp_path: Path) -> None:
    calls = [{"function": {"name": "f", "arguments": "{}"}}]
    row = {
        "id": None,
        "conversation_id": "c1",
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": None,
                "reasoning": "because",
                "tool_calls": calls,
            },
            {"role": "tool", "content": "y"},
        ],
    }
    found = read(source(tmp_path, row)).rows
    assert found["conversation_id"][0] == "c1"
    assert json.loads(found["messages"][0])[1]["reasoning_content"] == "because"


def test_the_target_sees_tools_in_the_order_of_the_source_and_no_null_that_arrow_filled_in(tmp_path: Path) -> None:
    properties = {"to": {"type": "string", "enum": None}, "date": {"type": "string", "description": "when"}}
    function = {"name": "book", "description": "d", "parameters": {"type": "object", "properties": properties}}
    arguments = {"to": "Oslo", "date": "now"}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "book", "arguments": arguments}}]},
        {"role": "tool", "content": "done"},
    ]
    row = {"id": "a", "messages": messages, "tools": [{"type": "function", "function": function}]}
    path = tmp_path / "source.parquet"
    pl.DataFrame([row]).write_parquet(path)
    found = read(Dataset(name="d", source=str(path))).rows
    assert found["tools"][0] == (
        '[{"type":"function","function":{"name":"book","description":"d","parameters":{"type":"object","properties":'
        '{"to":{"type":"string"},"date":{"type":"string","description":"when"}}}}}]'
    )
    assert '"arguments":{"to":"Oslo","date":"now"}' in found["messages"][0]


def test_an_id_is_made_of_content_where_there_is_none(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": text}]} for text in ("one", "two")]
    first = read(source(tmp_path, *rows)).rows["conversation_id"].to_list()
    assert read(source(tmp_path, *reversed(rows))).rows["conversation_id"].to_list() == first[::-1]
    assert len(set(first)) == 2


def test_a_longer_source_moves_no_row(tmp_path: Path) -> None:
    few = [chat(f"c{i}") for i in range(40)]
    before = [read(source(tmp_path, *few, shards=3), n).rows["sample_id"].to_list() for n in range(3)]
    more = source(tmp_path, *few, *(chat(f"later{i}") for i in range(40)), shards=3)
    after = [read(more, n).rows["sample_id"].to_list() for n in range(3)]
    for old, new in zip(before, after, strict=True):
        assert [i for i in new if i in set(old)] == old
    assert sum(map(len, before)) == 40


def test_a_trial_is_the_first_rows_by_hash_in_source_order(tmp_path: Path) -> None:
    rows = [chat(f"c{i}") for i in range(50)]
    trial = read(source(tmp_path, *rows, shards=2), 2, trial_rows=5).rows["conversation_id"].to_list()
    assert len(trial) == 5
    assert trial == sorted(trial, key=lambda i: int(i[1:]))
    shuffled = read(source(tmp_path, *rows[::-1], shards=2), 2, trial_rows=5).rows["conversation_id"].to_list()
    assert set(shuffled) == set(trial)


def test_an_empty_source_gives_an_empty_frame(tmp_path: Path) -> None:
    found = read(source(tmp_path))
    assert found.rows.schema == PROMPTS
    assert (len(found.rows), found.accounts.rows) == (0, 0)


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptSourceError, match=r"none\.jsonl: the dataset's source cannot be read: No such file"):
        read(Dataset(name="d", source=str(tmp_path / "none.jsonl")))
