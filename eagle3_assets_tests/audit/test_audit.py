"""The command on files of every form, whole and broken."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from typer.testing import CliRunner

from eagle3_assets.audit import auditing, report, sources
from eagle3_assets.cli import app, audit_tables
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.audit.conftest import (
    Audit,
    Line,
    errors,
    genuine_lines,
    jsonl,
    many_good,
    reply,
    without_remarks,
    write,
)
from eagle3_assets_tests.tokens import kimi

A, B, C = kimi.letters("abc")
STOP, END, T = kimi.IM_END, kimi.END_THINK, kimi.THINKING_PROMPT
GOOD = [A, END, B, STOP]
BROKEN = [A, END, B]
"""Without the stop id that the reply names."""


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {law["name"]: law for law in result["laws"]}


def test_the_result_has_this_shape(tmp_path: Path, audit: Audit) -> None:
    path = write(tmp_path / "o.jsonl", reply("good", GOOD), reply("bad", BROKEN), b"{\n")
    result = audit(path).only
    assert list(result) == ["file", "samples", "laws", "findings", "file_findings", "refused", "verdict"]
    assert result["file"] == str(path)
    assert result["samples"] == {"judged": 2, "passed": 1, "warned": 0, "failed": 1}
    assert result["findings"] == {"bad": {"stop_token_last": "error"}}
    # A third of the lines was refused.
    assert [found["law"] for found in result["file_findings"]] == ["conservation"]
    [refused] = result["refused"]
    assert refused.pop("reason").startswith("is not JSON")
    assert refused == {"line": 3, "sample_id": None}
    assert result["verdict"] == "fail"
    assert [law["name"] for law in result["laws"]] == [law.name for law in LAWS]
    laws = by_name(result)
    assert laws["stop_token_last"] == {
        "name": "stop_token_last",
        "effect": "quarantine",
        "judged": 2,
        "violations": 1,
        "share": 0.5,
        "examples": [
            {
                "sample_id": "bad",
                "line": 2,
                "index": 2,
                "detail": laws["stop_token_last"]["examples"][0]["detail"],
            }
        ],
    }
    assert laws["logprobs_agree"] == {
        "name": "logprobs_agree",
        "effect": "quarantine",
        "judged": 0,
        "violations": 0,
        "share": 0.0,
        "examples": [],
        "reason": "no row records log-probabilities",
    }


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "misnamed"])
def test_genuine_samples_pass(suffix: str, tmp_path: Path, audit: Audit) -> None:
    answered = audit(write(tmp_path / f"o.{suffix}", *genuine_lines()))
    assert (answered.exit_code, answered.only["verdict"], answered.only["findings"]) == (0, "pass", {})
    assert answered.only["samples"]["passed"] == len(genuine_lines())


def forms(output: list[int]) -> list[dict[str, Any]]:
    """One reply as other tools write it."""
    logprobs = [[-0.5, token, "x"] for token in output]
    sampling = {"max_new_tokens": 64, "temperature": 0.7, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    full = sampling | {"repetition_penalty": 1.0, "sampling_seed": 3, "stop_token_ids": [STOP]}
    return [
        reply("1", output),
        {"id": 2, "token_ids": output, "finish_reason": "stop"},
        {"id": "3", "output_ids": output, "finish_reason": None, "prompt_ids": None, "meta_info": None},
        {"id": "4", "input_ids": [*T, *output], "loss_mask": [0] * len(T) + [1] * len(output)},
        {"id": "5", "prompt_ids": T, "output_ids": output, "finish_type": "stop", "matched_stop": "163586"},
        {"id": "6", "prompt_token_ids": T, "output_ids": output, "finish_reason": "stop", "matched_stop": STOP},
        {"id": "7", "output_ids": output, "output_token_logprobs": logprobs, "sampling_params": full},
        {"id": "8", "output_ids": output, "tools": [{"type": "function"}], "text": "half a pair: \ud800", "usage": {}},
        {"id": "9", "output_ids": output, "usage": {"completion_tokens": len(output)}, "meta_info": "{}"},
    ]


def test_every_form_of_a_row_is_read(tmp_path: Path, audit: Audit) -> None:
    answered = audit(write(tmp_path / "o.jsonl", *forms(GOOD)))
    assert (answered.only["refused"], answered.only["findings"]) == ([], {})
    assert {found["law"] for found in answered.only["file_findings"]} == {"duplicates"}  # one reply over and over
    laws = by_name(answered.only)
    assert laws["completion_count"]["judged"] == 2
    assert laws["stop_token_last"]["judged"] == 4
    assert laws["reasoning_closed"]["judged"] == 4
    assert laws["logprobs_agree"]["judged"] == laws["within_cap"]["judged"] == 1


def test_every_form_of_a_broken_row_is_found_out(tmp_path: Path, audit: Audit) -> None:
    result = audit(write(tmp_path / "o.jsonl", *forms([A, B, STOP, C]))).only
    assert all(errors(result, str(number)) for number in range(1, 10))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{\n", "is not JSON"),
        (b"[1]\n", "is not a JSON object"),
        (b'{"a":1,"a":2}\n', "key 'a' twice"),
        (b'"\xff"\n', "is not UTF-8"),
        ({"id": "x", "output_ids": [1], "completion_tokens": float("inf")}, "completion_tokens is Infinity"),
        ({"id": " \t", "output_ids": [1]}, "id is blank"),
        ({"output_ids": [1]}, "has no sample_id"),
        ({"id": "", "output_ids": [1]}, "id is empty"),
        ({"id": 1.5, "output_ids": [1]}, "id is 1.5, not a string"),
        ({"id": "x"}, "has no output_ids"),
        ({"id": "x", "output_ids": None}, "output_ids is null"),
        ({"id": "x", "output_ids": [1], "output_logprobs": [-(10**400)]}, "output_logprobs is not a list of numbers"),
        (
            {"id": "x", "output_ids": [1], "output_token_logprobs": [[-(10**400), 1]]},
            "output_token_logprobs[0] is not [log-probability, id, text]",
        ),
        ({"id": "x", "output_ids": "1 2"}, "output_ids is"),
        ({"id": "x", "output_ids": [1], "token_ids": [2]}, "are not the same"),
        ({"id": "x", "output_ids": [1], "completion_tokens": 1.5}, "completion_tokens is 1.5, not a whole number"),
        ({"id": "x", "output_ids": [1], "completion_tokens": "1"}, "completion_tokens"),
        ({"id": "x", "output_ids": [1], "completion_tokens": 2**63}, "completion_tokens"),
        ({"id": "x", "output_ids": [1], "finish_reason": {}}, "finish_reason has no type"),
        ({"id": "x", "output_ids": [1], "finish_reason": 3}, "finish type is 3"),
        ({"id": "x", "output_ids": [1], "meta_info": [1]}, "meta_info"),
        ({"id": "x", "output_ids": [1], "output_token_logprobs": [[-1]]}, "output_token_logprobs[0]"),
        ({"id": "x", "output_ids": [1], "text": ["a"]}, "text is a list"),
        ({"id": "x", "output_ids": [1], "meta_info": {"weight_versions": [{}]}}, "weight_versions"),
        ({"id": "x", "output_ids": [1], "loss_mask": [1]}, "both output_ids and a loss_mask"),
        ({"id": "x", "input_ids": [1, 2], "loss_mask": [1]}, "loss_mask has 1 values for 2 input_ids"),
        ({"id": "x", "input_ids": [1, 2], "loss_mask": [0, 0]}, "loss_mask is all zero"),
        ({"id": "x", "input_ids": [1, 2, 3], "loss_mask": [1, 0, 1]}, "loss_mask has a gap"),
        ({"id": "x", "input_ids": [1, 2], "loss_mask": [1, 0]}, "loss_mask ends before the last id"),
        ({"id": "x", "input_ids": [1, 2], "loss_mask": [0, 2]}, "zeros and ones"),
        ({"id": "x", "input_ids": [1, 2], "loss_mask": [0, [1]]}, "zeros and ones"),
        ({"id": "x", "loss_mask": [1]}, "input_ids is null"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused_and_the_rest_goes_on(
    line: Any, reason: str, tmp_path: Path, audit: Audit
) -> None:
    answered = audit(write(tmp_path / "o.jsonl", *many_good(99), line, reply("after", GOOD)))
    [refused] = answered.only["refused"]
    assert refused["line"] == 100
    assert reason in refused["reason"]
    assert refused["sample_id"] == ("x" if isinstance(line, dict) and line.get("id") == "x" else None)
    assert answered.only["samples"]["passed"] == 100
    assert (answered.exit_code, answered.only["verdict"]) == (0, "warn")


@pytest.mark.parametrize("fault", [None, "2", True, 2.5, float("nan"), 2**63, -1])
@pytest.mark.parametrize(
    ("key", "law"),
    [("output_ids", "ids_in_vocabulary"), ("prompt_ids", "prompt_well_formed"), ("input_ids", "ids_in_vocabulary")],
)
def test_what_is_no_id_breaks_the_law_about_ids(
    fault: object, key: str, law: str, tmp_path: Path, audit: Audit
) -> None:
    row = reply("s", [A, A, *GOOD[1:]])
    if key == "input_ids":
        row = {"id": "s", "input_ids": T + row["output_ids"], "loss_mask": [0] * len(T) + [1] * len(row["output_ids"])}
    row[key] = [*row[key]]
    row[key][-4 if key != "prompt_ids" else 3] = fault
    answered = audit(write(tmp_path / "o.jsonl", row))
    assert (answered.exit_code, errors(answered.only, "s"), answered.only["refused"]) == (1, {law}, [])
    [example] = by_name(answered.only)[law]["examples"]
    named: dict[object, str] = {-1: "id -1 at", 2**63: "an id of more than 63 bits at"}
    assert example["detail"].startswith(named.get(fault, "a missing id (null, or no whole number) at"))


@pytest.mark.parametrize("more", [{}, {"finish_reason": ["stop", "stop"]}])
@pytest.mark.parametrize("ids", [[A, None, END, B, STOP], [A, -1, END, B, STOP]])
def test_a_missing_id_is_one_fault_in_every_parquet(
    more: dict[str, Any], ids: list[int | None], tmp_path: Path, audit: Audit
) -> None:
    frame = pl.DataFrame({"sample_id": ["good", "bad"], "output_ids": [GOOD, ids], **more})
    frame.write_parquet(tmp_path / "o.parquet")
    answered = audit(tmp_path / "o.parquet")
    assert (answered.exit_code, answered.only["refused"]) == (1, [])
    assert answered.only["findings"] == {"bad": {"ids_in_vocabulary": "error"}}


@pytest.mark.parametrize("absent", [None, float("nan")])
def test_counts_beside_missing_ones_are_whole_numbers(absent: float | None, tmp_path: Path, audit: Audit) -> None:
    rows = {
        "sample_id": ["good", "bad", "silent"],
        "output_ids": [GOOD] * 3,
        "completion_tokens": pl.Series([4.0, 3.0, absent]),
        "finish_type": ["stop"] * 3,
        "matched_stop": pl.Series([float(STOP), float(STOP), absent]),
    }
    pl.DataFrame(rows).write_parquet(tmp_path / "o.parquet")
    result = audit(tmp_path / "o.parquet").only
    assert (result["refused"], result["findings"]) == ([], {"bad": {"completion_count": "error"}})
    assert by_name(result)["completion_count"]["judged"] == 2


def test_pairs_that_a_table_can_only_hold_as_floats_are_pairs(tmp_path: Path, audit: Audit) -> None:
    pairs = [[[-0.1, float(token)] for token in output] for output in (GOOD, [A, END, C, STOP])]
    rows = {"sample_id": ["good", "other"], "output_ids": [GOOD] * 2, "output_token_logprobs": pairs}
    pl.DataFrame(rows).write_parquet(tmp_path / "o.parquet")
    result = audit(tmp_path / "o.parquet").only
    assert (result["refused"], result["findings"]) == ([], {"other": {"logprobs_agree": "error"}})


@pytest.mark.parametrize(("refused", "code", "verdict"), [(1, 0, "warn"), (2, 1, "fail"), (99, 1, "fail")])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_file_of_which_more_than_one_in_a_hundred_lines_are_refused_fails(
    refused: int, code: int, verdict: str, form: str, tmp_path: Path, audit: Audit
) -> None:
    good = many_good(100 - refused)
    rows: list[Line] = [*good, *({**reply("unnamed", GOOD), "sample_id": " "} for _ in range(refused))]
    path = tmp_path / f"o.{form}"
    if form == "jsonl":
        write(path, *rows)
    else:
        pl.DataFrame(rows).write_parquet(path)
    answered = audit(path)
    assert (answered.exit_code, answered.only["verdict"]) == (code, verdict)
    assert answered.only["samples"]["passed"] == 100 - refused
    said = [f["detail"] for f in answered.only["file_findings"] if f["law"] == "conservation"]
    assert [text.split(" could")[0] for text in said] == ([f"{refused} of 100 lines ({refused}.00%)"] if code else [])


@pytest.mark.parametrize(
    ("recorded", "laws"),
    [
        ({"output_logprobs": [-0.5, float("nan"), -0.5, -0.5]}, {"logprobs_agree"}),
        ({"output_logprobs": [float("-inf"), -0.5, -0.5, -0.5]}, {"logprobs_agree"}),
        ({"output_logprobs": [-0.5, -0.5, -0.5, 3.5]}, {"logprobs_agree"}),
        ({"completion_tokens": -3}, {"completion_count", "usage_consistent"}),
        ({"prompt_tokens": -1}, {"server_saw_prompt", "usage_consistent"}),
        ({"cached_tokens": -1}, {"usage_consistent"}),
        ({"finish_type": "length", "finish_length": -1}, {"length_honest"}),
    ],
)
def test_what_no_engine_can_mean_breaks_its_law_in_every_form(
    recorded: dict[str, Any], laws: set[str], tmp_path: Path, audit: Audit
) -> None:
    row = {"sample_id": "s", "prompt_ids": T, "output_ids": GOOD, **recorded}
    files = [write(tmp_path / "o.jsonl", row), tmp_path / "own.parquet", tmp_path / "mapped.parquet"]
    pl.DataFrame([row]).write_parquet(files[1])
    pl.DataFrame([row]).rename({"output_ids": "token_ids"}).with_columns(usage=pl.lit(None)).write_parquet(files[2])
    answered = audit(*files)
    assert [(errors(r, "s"), r["refused"], r["verdict"]) for r in answered.files] == [(laws, [], "fail")] * 3


def test_numbers_beyond_every_float_are_judged_too(tmp_path: Path, audit: Audit) -> None:
    line = b'{"id":"s","output_ids":[1],"output_token_logprobs":[[-1e999,1]]}\n'
    assert errors(audit(write(tmp_path / "o.jsonl", line)).only, "s") == {"logprobs_agree"}


@pytest.mark.parametrize("line_end", [b"", b"\n"])
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_lines_cut_off_in_the_middle_are_a_torn_file(
    line_end: bytes, suffix: str, tmp_path: Path, audit: Audit
) -> None:
    cut = json.dumps(reply("cut", GOOD)).encode()[:-40] + line_end
    answered = audit(write(tmp_path / f"o.{suffix}", *many_good(100), cut))
    number = 101
    torn = [f["detail"] for f in answered.only["file_findings"] if f["law"] == "conservation"]
    assert answered.only["samples"]["passed"] == 100
    if line_end:  # a line that was ended so is one bad line; what follows is whole
        assert (answered.exit_code, torn, answered.only["refused"][0]["line"]) == (0, [], number)
    else:
        assert (answered.exit_code, answered.only["verdict"], answered.only["refused"]) == (1, "fail", [])
        [said] = torn
        assert said.startswith(f"The file ends in the middle of line {number}: ")


@pytest.mark.parametrize("cut", [b'{"id":"a', b'{"id":"\xc3', b"\0\0\0\0", b"{"])
def test_a_file_that_is_one_torn_line_cannot_be_used(cut: bytes, tmp_path: Path, audit: Audit) -> None:
    (tmp_path / "o").write_bytes(cut)
    answered = audit(tmp_path / "o")
    assert (answered.exit_code, answered.only["verdict"]) == (2, "nothing_judged")
    assert "ends in the middle of line 1" in answered.stderr


@pytest.mark.parametrize("line", [b"[1]", b'{"id":"x"}', b"[" * 300 + b"]" * 300, b"9" * 5000])
def test_a_whole_last_line_without_line_end_is_no_tear(line: bytes, tmp_path: Path, audit: Audit) -> None:
    answered = audit(write(tmp_path / "o.jsonl", *many_good(100), line))
    assert (answered.exit_code, answered.only["verdict"]) == (0, "warn")
    assert answered.only["refused"][0]["line"] == 101


def test_blank_names_are_refused_in_parquet_too(tmp_path: Path, audit: Audit) -> None:
    pl.DataFrame({"sample_id": ["", " \t", "s"], "output_ids": [GOOD] * 3}).write_parquet(tmp_path / "o.parquet")
    result = audit(tmp_path / "o.parquet").only
    assert [(r["line"], r["reason"]) for r in result["refused"]] == [
        (1, "sample_id is blank"),
        (2, "sample_id is blank"),
    ]
    assert result["samples"]["judged"] == 1


@pytest.mark.parametrize("data", [b"", b"\n\n", b"{]\n[\n", jsonl({"id": "x"}, {"output_ids": []})])
def test_where_nothing_was_judged_nothing_passes(data: bytes, tmp_path: Path, audit: Audit) -> None:
    (tmp_path / "o.jsonl").write_bytes(data)
    answered = audit(tmp_path / "o.jsonl")
    assert (answered.exit_code, answered.only["verdict"]) == (2, "nothing_judged")
    assert answered.only["samples"] == {"judged": 0, "passed": 0, "warned": 0, "failed": 0}
    assert {law["judged"] for law in answered.only["laws"]} == {0}
    assert all(law["reason"] for law in answered.only["laws"])


@pytest.mark.parametrize("token", [-1, kimi.VOCAB_SIZE, 2**31, 2**62])
def test_an_id_outside_the_vocabulary_is_judged_as_it_is(token: int, tmp_path: Path, audit: Audit) -> None:
    result = audit(write(tmp_path / "o.jsonl", reply("s", [A, token, END, B, STOP]))).only
    assert errors(result, "s") == {"ids_in_vocabulary"}
    assert by_name(result)["ids_in_vocabulary"]["examples"][0]["index"] == 1


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("broken", [None, 0])
def test_of_a_torn_packed_file_what_can_be_read_is_judged(
    suffix: str, broken: int | None, tmp_path: Path, audit: Audit
) -> None:
    lines = [reply(str(number), [*kimi.letters(f"{number * 7919}"), *GOOD]) for number in range(4_000)]
    if broken is not None:
        lines[broken] = reply("bad", BROKEN)
    path = write(tmp_path / f"o.jsonl.{suffix}", *lines)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    answered = audit(path)
    judged = answered.only["samples"]["judged"]
    assert 0 < judged < len(lines)
    assert (answered.exit_code, answered.only["verdict"], answered.only["refused"]) == (1, "fail", [])
    assert answered.only["findings"] == ({} if broken is None else {"bad": {"stop_token_last": "error"}})
    [finding] = [f for f in answered.only["file_findings"] if f["law"] == "conservation"]
    assert finding["effect"] == "refuse"
    assert finding["detail"].startswith(f"The file is damaged after line {judged:,}, so that the rest cannot be read: ")
    assert by_name(answered.only)["conservation"]["violations"] == 1
    shown = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"])
    assert shown.exit_code == 1
    assert f"conservation: The file is damaged after line {judged:,}" in shown.stdout


def test_a_checksum_that_does_not_hold_is_damage_too(tmp_path: Path, audit: Audit) -> None:
    path = write(tmp_path / "o.jsonl.gz", *genuine_lines())
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    answered = audit(path)
    assert (answered.exit_code, answered.only["samples"]["judged"]) == (1, len(genuine_lines()))
    assert "CRC" in answered.only["file_findings"][0]["detail"]


def test_rows_without_an_output_are_counted_by_their_state(tmp_path: Path, audit: Audit) -> None:
    frame = kimi.generations(without_remarks())
    without = frame.head(4).with_columns(
        pl.Series("sample_id", ["w", "x", "y", "z"]),
        pl.Series("status", ["failed", "refused_prompt", "refused_prompt", "odd\x1b"]),
        pl.lit(None, frame["output_ids"].dtype).alias("output_ids"),
    )
    path = tmp_path / "own.parquet"
    pl.concat([frame, without]).write_parquet(path)
    answered = audit(path)
    assert answered.only["without_output"] == {"failed": 1, "refused_prompt": 2, "another state": 1}
    assert answered.only["samples"]["judged"] == len(frame)
    shown = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"])
    assert "4 rows without an output not judged: 1 failed, 2 refused_prompt, 1 another state" in shown.stdout
    frame.write_parquet(path)
    assert "without_output" not in audit(path).only


@pytest.mark.parametrize(("lines", "said"), [([7], " (line 7)"), ([2, 9], " (lines 2, 9)"), ([], "")])
def test_lines_are_counted_as_people_do(lines: list[int], said: str) -> None:
    assert audit_tables._places(lines) == said


def test_why_laws_are_not_judged_is_true_of_a_file(tmp_path: Path, audit: Audit) -> None:
    laws = by_name(audit(write(tmp_path / "o.jsonl", reply("s", GOOD))).only)
    assert laws["prompt_suffix"]["reason"] == "its thinking mode is not recorded"
    assert laws["length_band"]["reason"] == "no expected lengths are at hand (a dataset's length_band)"


def parquet_bytes() -> bytes:
    kimi.generations().write_parquet(target := io.BytesIO())
    return target.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (json.dumps(reply("s", GOOD), indent=1).encode(), "is JSON over several lines, not one row a line"),
        (json.dumps([reply("s", GOOD)], indent=1).encode(), "is a JSON array, not JSON lines"),
        (json.dumps([reply("s", GOOD)]).encode(), "is a JSON array, not JSON lines"),
        (jsonl(*genuine_lines()).replace(b"\n", b"\r"), "is text whose lines end with CR alone"),
        (jsonl(*genuine_lines()).decode().encode("utf-16"), "is UTF-16 text"),
        (jsonl(*genuine_lines()).decode().encode("utf-16-be"), "is UTF-16 text"),
        (lzma.compress(jsonl(*genuine_lines())), "is xz"),
        (bz2.compress(jsonl(*genuine_lines())), "is bzip2"),
        (gzip.compress(gzip.compress(jsonl(*genuine_lines()))), "is packed twice"),
        (gzip.compress(parquet_bytes()), "is a Parquet file that was packed once more"),
        (gzip.compress(json.dumps(reply("s", GOOD), indent=1).encode()), "is JSON over several lines"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    ],
)
def test_a_whole_file_of_another_kind_is_called_what_it_is(
    data: bytes, said: str, tmp_path: Path, audit: Audit
) -> None:
    (tmp_path / "o").write_bytes(data)
    answered = audit(tmp_path / "o")
    assert answered.exit_code == 2
    assert answered.stderr.startswith(f"{tmp_path / 'o'}: {said}")


def test_a_first_row_that_was_cut_in_its_middle_is_one_bad_line(tmp_path: Path, audit: Audit) -> None:
    path = write(tmp_path / "o.jsonl", b'{"sample_id": "cut", "output_ids": [1,\n', *genuine_lines())
    result = audit(path).only
    assert ([r["line"] for r in result["refused"]], result["samples"]["passed"]) == ([1], len(genuine_lines()))


def test_a_pipe_is_read_but_for_parquet(tmp_path: Path, audit: Audit) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for data, code in ((jsonl(*genuine_lines()), 0), (gzip.compress(jsonl(*genuine_lines())), 0), (parquet_bytes(), 2)):
        writer = threading.Thread(target=pipe.write_bytes, args=(data,))
        writer.start()
        answered = audit(pipe)
        writer.join()
        assert answered.exit_code == code
        assert answered.only["samples"]["passed"] == (0 if code else len(genuine_lines()))
    assert "is a Parquet file in a pipe" in answered.stderr
    assert "write it to a file first" in answered.stderr


def test_a_minus_is_stdin() -> None:
    command = [sys.executable, "-m", "eagle3_assets.cli", "audit", "-", "--profile", "kimi", "--json"]
    done = subprocess.run(command, input=jsonl(*genuine_lines()), capture_output=True, check=True)
    assert json.loads(done.stdout)["samples"]["passed"] == len(genuine_lines())


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_that_nothing_came_is_said(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eagle3_assets.cli", "audit", "-", "--profile", "kimi", *options]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (done.returncode, b"Standard input was empty." in done.stdout + done.stderr) == (2, True)
    (tmp_path / "o.jsonl").touch()
    shown = CliRunner().invoke(app, ["audit", str(tmp_path / "o.jsonl"), "--profile", "kimi"])
    assert "The file holds no rows." in shown.stdout


def test_a_frame_of_zstandard_that_holds_no_data_is_skipped(tmp_path: Path, audit: Audit) -> None:
    skipped = b"\x50\x2a\x4d\x18" + (5_000).to_bytes(4, "little") + b"x" * 5_000
    packed = zstandard.ZstdCompressor().compress(jsonl(*genuine_lines()))
    (tmp_path / "o.zst").write_bytes(skipped + packed + skipped)
    assert audit(tmp_path / "o.zst").only["samples"]["passed"] == len(genuine_lines())


def test_zstandard_files_of_several_frames_are_read_whole(tmp_path: Path, audit: Audit) -> None:
    pack = zstandard.ZstdCompressor().compress
    whole = jsonl(*genuine_lines())
    (tmp_path / "o.zst").write_bytes(pack(whole[:100]) + pack(b"") + pack(whole[100:]))
    assert audit(tmp_path / "o.zst").only["samples"]["passed"] == len(genuine_lines())


def test_one_line_for_each_file_and_the_worst_exit_code(tmp_path: Path, audit: Audit) -> None:
    good = write(tmp_path / "good.jsonl", *genuine_lines())
    bad = write(tmp_path / "bad.jsonl", reply("s", BROKEN))
    assert audit(good, bad).exit_code == 1
    answered = audit(good, tmp_path / "missing.jsonl", bad, tmp_path)
    assert [result["verdict"] for result in answered.files] == ["pass", "nothing_judged", "fail", "nothing_judged"]
    assert "missing.jsonl: cannot be read" in answered.files[1]["refused"][0]["reason"]
    assert answered.exit_code == 2


def test_own_parquet(tmp_path: Path, audit: Audit) -> None:
    rows = {
        sample: row
        for sample, row in kimi.genuine().items()
        if not sample.startswith(("cut", "implicit", "tools-then-text"))
    }
    frame = kimi.generations(rows)
    failed = frame.head(1).with_columns(
        pl.lit("failed").alias("status"),
        pl.lit("lost").alias("sample_id"),
        pl.lit(None, frame["output_ids"].dtype).alias("output_ids"),
    )
    pl.concat([frame, failed]).write_parquet(tmp_path / "own.parquet")
    answered = audit(tmp_path / "own.parquet")
    assert (answered.exit_code, answered.only["verdict"], answered.only["refused"]) == (0, "pass", [])
    assert answered.only["samples"]["judged"] == len(frame)
    assert by_name(answered.only)["stored_as_captured"]["judged"] == len(frame)
    broken = frame.with_columns(pl.col("output_ids").list.head(2))
    broken.write_parquet(tmp_path / "broken.parquet")
    assert audit(tmp_path / "broken.parquet").only["samples"]["failed"] == len(frame)


@pytest.mark.parametrize("dtype", [pl.List(pl.Int64), pl.List(pl.UInt32), pl.List(pl.UInt64), pl.Array(pl.Int32, 4)])
def test_foreign_parquet(dtype: pl.DataType, tmp_path: Path, audit: Audit) -> None:
    frame = pl.DataFrame(
        {
            "id": [1, 2, 1, None],
            "token_ids": pl.Series([GOOD, [A, B, C, STOP], GOOD, GOOD], dtype=dtype),
            "prompt_ids": [T, T, None, T],
            "finish_reason": ["stop", "stop", "stop", "stop"],
            "score": [0.5] * 4,
        }
    )
    frame.write_parquet(tmp_path / "o.parquet")
    frame.drop("finish_reason").write_parquet(tmp_path / "columns.parquet")
    for name in ("o.parquet", "columns.parquet"):
        result = audit(tmp_path / name).only
        assert result["findings"] == {"2": {"reasoning_closed": "error"}}
        assert result["refused"] == [{"line": 4, "sample_id": None, "reason": "has no sample_id (or id)"}]
        assert [f["lines"] for f in result["file_findings"] if f["law"] == "conservation"] == [[1, 3], []]


def test_parquet_with_objects_and_trainer_rows(tmp_path: Path, audit: Audit) -> None:
    pl.DataFrame([reply("1", GOOD), reply("2", BROKEN)]).write_parquet(tmp_path / "replies.parquet")
    result = audit(tmp_path / "replies.parquet").only
    assert result["findings"] == {"2": {"stop_token_last": "error"}}
    trainer = {"id": ["a", "b"], "input_ids": [[*T, *GOOD], [1, 2]], "loss_mask": [[0] * len(T) + [1] * 4, [0, 0]]}
    pl.DataFrame(trainer).write_parquet(tmp_path / "trainer.parquet")
    result = audit(tmp_path / "trainer.parquet").only
    assert result["samples"]["passed"] == 1
    assert result["refused"][0] == {
        "line": 2,
        "sample_id": "b",
        "reason": "loss_mask is all zero: the row has no output",
    }


@pytest.mark.parametrize("more", [{}, {"finish_reason": ["stop"] * 40}])
def test_parquet_is_read_in_parts(more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_SLICE_ROWS", 3)
    outputs = [[A, END, *kimi.letters(f"{n}"), *([STOP] if n % 13 else [])] for n in range(40)]
    pl.DataFrame({"sample_id": range(40), "output_ids": outputs, **more}).write_parquet(tmp_path / "o.parquet")
    parts = list(sources.read_parts(tmp_path / "o.parquet"))
    assert [line for part in parts for line in part.lines] == list(range(1, 41))
    assert pl.concat(part.frame for part in parts)["output_ids"].to_list() == outputs


def test_parquet_that_is_replaced_between_its_parts_is_no_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_SLICE_ROWS", 3)
    path = tmp_path / "o.parquet"
    pl.DataFrame({"sample_id": range(40), "output_ids": [GOOD] * 40}).write_parquet(path)
    parts = sources.read_parts(path)
    next(parts)
    pl.DataFrame({"sample_id": range(40), "output_ids": [BROKEN] * 40}).write_parquet(tmp_path / "new")
    (tmp_path / "new").replace(path)
    with pytest.raises(sources.AuditError, match=r"o\.parquet: was written to or replaced while it was read"):
        list(parts)


@pytest.mark.parametrize("data", [b"PAR1", b"PAR1 and something else PAR1", b"\x1f\x8b\x00", b"\x28\xb5\x2f\xfd\x00"])
def test_a_damaged_file_cannot_be_used(data: bytes, tmp_path: Path, audit: Audit) -> None:
    (tmp_path / "o").write_bytes(data)
    answered = audit(tmp_path / "o")
    assert (answered.exit_code, answered.only["verdict"]) == (2, "nothing_judged")
    assert answered.stderr.startswith(str(tmp_path / "o"))


@pytest.mark.parametrize("left", [0.5, 0.99])
def test_a_torn_parquet_file_is_called_so(left: float, tmp_path: Path, audit: Audit) -> None:
    path = tmp_path / "o.parquet"
    kimi.generations().write_parquet(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * left)])
    answered = audit(path)
    assert (answered.exit_code, answered.only["verdict"]) == (2, "nothing_judged")
    assert answered.stderr.startswith(f"{path}: is torn: a parquet file ends with")


def test_parquet_without_outputs(tmp_path: Path, audit: Audit) -> None:
    kimi.prompts().write_parquet(tmp_path / "prompts.parquet")
    answered = audit(tmp_path / "prompts.parquet")
    assert (answered.exit_code, answered.only["verdict"]) == (2, "nothing_judged")
    assert "has no output_ids" in answered.only["refused"][0]["reason"]


def test_what_is_not_listed_is_counted(tmp_path: Path, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "FINDINGS_KEPT", 3)
    monkeypatch.setattr(auditing, "REFUSED_NAMED", 2)
    monkeypatch.setattr(report, "FILE_FINDINGS_NAMED", 1)
    rows = [reply(str(n % 4), BROKEN) for n in range(8)]
    result = audit(write(tmp_path / "o.jsonl", *rows, b"{\n", b"[\n", b"{\n")).only
    assert result["samples"]["failed"] == 8
    assert by_name(result)["stop_token_last"]["violations"] == 8
    assert len(result["findings"]) == 3
    assert len(result["refused"]) == 2
    assert len(result["file_findings"]) == 1
    assert result["cut_off"]["refused"] == 1
    assert result["cut_off"]["findings"] >= 5
    assert result["cut_off"]["file_findings"] >= 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "whose tokens should they be?"),
        (("--profile", "nobody"), "there is no profile 'nobody'"),
        (("--profile", "chatml"), "the ids of profile 'chatml' are not built in"),
        (("--tokenizer", "/nowhere"), "there is no directory /nowhere"),
        (("--config", "/nowhere.yaml"), "/nowhere.yaml"),
        (("--config", "x", "--profile", "kimi"), "leave --profile and --tokenizer out"),
    ],
)
def test_options_that_name_no_target(options: tuple[str, ...], said: str, tmp_path: Path, audit: Audit) -> None:
    answered = audit(write(tmp_path / "o.jsonl", *genuine_lines()), options=options)
    assert (answered.exit_code, answered.files) == (2, [])
    assert said in answered.stderr


def test_a_tokenizer_adds_laws_and_text(tmp_path: Path, audit: Audit, tokenizer_directory: Path) -> None:
    path = write(tmp_path / "o.jsonl", *genuine_lines(), reply("bad\u202e", BROKEN))
    options = ("--tokenizer", str(tokenizer_directory))
    result = audit(path, options=options).only
    assert by_name(result)["tokenizer_canary"]["judged"]
    assert not by_name(audit(path).only)["tokenizer_canary"]["judged"]
    shown = CliRunner().invoke(app, ["audit", str(path), *options])
    assert shown.exit_code == 1
    assert "FAIL" in shown.stdout
    assert "bad<U+202E>" in shown.stdout
    assert "\u202e" not in shown.stdout
    assert "assistant<|im_middle|><think>a</think> ⟦b⟧" in shown.stdout


@pytest.fixture
def configured(tmp_path: Path, tokenizer_directory: Path) -> Callable[..., tuple[str, str]]:
    """Options that name a config of these datasets, each with what its sampling says."""
    (tokenizer_directory / "config.json").write_text(
        json.dumps({"vocab_size": kimi.VOCAB_SIZE, "max_position_embeddings": 4096, "eos_token_id": [STOP, kimi.EOS]})
    )
    (tmp_path / "template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "prompts.jsonl").write_text("{}\n")

    def write_config(**samplings: dict[str, Any]) -> tuple[str, str]:
        settings = {
            "target": {"model": str(tokenizer_directory), "chat_template": "template.jinja"},
            "law_effects": {"reasoning_closed": "warn"},
            "datasets": [
                {"name": name, "source": "prompts.jsonl", "sampling": said} for name, said in samplings.items()
            ],
        }
        (tmp_path / "eagle3.yaml").write_text(json.dumps(settings))  # which is YAML, too
        return "--config", str(tmp_path / "eagle3.yaml")

    return write_config


def test_a_config_gives_the_stop_ids_that_its_datasets_add(
    tmp_path: Path, audit: Audit, configured: Callable[..., tuple[str, str]]
) -> None:
    row = {"sample_id": "s", "output_ids": [A, END, B, C], "finish_type": "stop", "matched_stop": str(C)}
    file = write(tmp_path / "o.jsonl", row)
    assert audit(file, options=configured(d={})).only["findings"] == {"s": {"stop_token_last": "error"}}
    extra = {"stop_token_ids": [C]}
    answered = audit(file, options=configured(d=extra, e=extra))
    assert (answered.only["findings"], "stop ids of some" in answered.stderr) == ({}, False)
    answered = audit(file, options=configured(d=extra, e={}))
    assert answered.only["findings"] == {"s": {"stop_token_last": "error"}}
    assert f"stop ids of some datasets alone, {C}, count in rows that record them" in answered.stderr


def test_a_config_gives_target_and_effects(
    tmp_path: Path, audit: Audit, configured: Callable[..., tuple[str, str]]
) -> None:
    answered = audit(write(tmp_path / "o.jsonl", reply("s", [A, B, C, STOP])), options=configured(d={}))
    assert answered.exit_code == 0
    assert answered.only["findings"] == {"s": {"reasoning_closed": "warning"}}
    assert by_name(answered.only)["reasoning_closed"]["effect"] == "warn"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_text_fits_its_terminal_with_what_is_broken_first(columns: int, tmp_path: Path) -> None:
    broken = [reply("no-stop", BROKEN), reply("counted", GOOD, meta={"completion_tokens": 3})]
    broken.append(reply("unclosed-" + "x" * 120, [A, B, C, STOP]))
    good = [{**line, "completion_tokens": len(line["output_ids"])} for line in many_good(57)]
    path = write(tmp_path / "o.jsonl", *good, *broken, b"{\n")
    environment = {"COLUMNS": str(columns)}
    shown = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"], env=environment).stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) < (130 if columns == 60 else 100)
    marks = re.findall(r"^(FAIL|warn|ok|n/j) +([a-z_]+:|\d+ laws not judged)", shown, re.MULTILINE)
    assert [mark for mark, _ in marks] == sorted((m for m, _ in marks), key=["FAIL", "warn", "ok", "n/j"].index)
    names = {name.rstrip(":") for mark, name in marks if mark != "n/j"}
    assert names <= {law.name for law in LAWS}
    assert {"stop_token_last", "completion_count", "reasoning_closed", "conservation"} <= {
        name.rstrip(":") for mark, name in marks if mark == "FAIL"
    }
    assert [name for mark, name in marks if mark == "n/j"] == [f"{len(LAWS) - len(names)} laws not judged"]
    closing = " ".join(shown.rpartition("\nFAIL ")[2].split())
    counts = "60 samples judged: 57 passed, 0 with a warning, 3 failed; 1 line refused"
    assert closing.startswith(f"{counts}. Look at one: eagle3-assets decode ")
    # A long path is broken where the terminal ends.
    assert closing.replace(" ", "").endswith("/o.jsonl--idno-stop--tokenizerDIR")
    every = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi", "--all"], env=environment).stdout
    assert {law.name for law in LAWS} == set(re.findall(r"^(?:FAIL|warn|ok|n/j) +([a-z_]+):", every, re.MULTILINE))


@pytest.mark.parametrize("name", ["o.jsonl.gz", "o.jsonl"])
def test_a_file_that_decode_does_not_take_is_gone_on_with_by_its_findings(name: str, tmp_path: Path) -> None:
    ids = [*T, *BROKEN]
    row = {"sample_id": "bad", "input_ids": ids, "loss_mask": [int(place >= len(T)) for place in range(len(ids))]}
    path = write(tmp_path / name, row | {"finish_type": "stop", "matched_stop": str(STOP)})
    shown = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"]).stdout
    assert f"All that was found: eagle3-assets audit {path} --json" in " ".join(shown.split())


def test_a_law_that_is_judged_of_most_rows_says_of_how_many_it_is_not(tmp_path: Path, audit: Audit) -> None:
    row = {"sample_id": "silent", "output_ids": GOOD}
    result = audit(write(tmp_path / "o.jsonl", *many_good(5), row)).only
    assert by_name(result)["finish_known"]["reason"] == "finish_type is not recorded in 1 of 6 samples"


def test_control_characters_reach_no_terminal(tmp_path: Path) -> None:
    rows: list[Line] = [reply("a\x1b[2J\u202e", BROKEN, "\x1b[31mred"), {"id": "\x07bell"}, b"{\x1b\n"]
    shown = CliRunner().invoke(app, ["audit", str(write(tmp_path / "o.jsonl", *rows)), "--profile", "kimi"])
    assert shown.exit_code == 1
    assert not {"\x1b", "\x07", "\u202e"} & set(shown.output)
    assert "<U+001B>" in shown.stdout


def test_the_examples_in_the_docs_say_what_the_command_says(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    page = (root / "docs" / "audit.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```console\n\$ \.venv/bin/eagle3-assets (.*?)\n(.*?)```", page, re.DOTALL)
    command, told = example
    shown = CliRunner().invoke(app, command.split())
    assert shown.exit_code == 1
    assert shown.stdout.startswith(told)
    [offender] = re.findall(r"```\n(stop_token_last .*?)```", page, re.DOTALL)
    assert offender in shown.stdout


def test_the_docs_name_the_keys_of_the_result(tmp_path: Path, audit: Audit) -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    result = audit(write(tmp_path / "o.jsonl", reply("s", BROKEN), reply("s", BROKEN), b"{\n")).only
    keys = [*result, *result["samples"], *result["laws"][0], *result["file_findings"][0], *result["refused"][0]]
    assert [key for key in keys if f'"{key}"' not in page] == []


def test_the_text_shows_what_is_broken_before_what_has_a_remark(tmp_path: Path) -> None:
    keys = ("prompt_ids", "output_ids", "completion_tokens")
    remarked = kimi.genuine()["implicit-end"]
    rows = [{"sample_id": f"i{n}", **{key: remarked[key] for key in keys}} for n in range(8)]
    broken = {"sample_id": "broken", "prompt_ids": remarked["prompt_ids"], "output_ids": [A, B, STOP]}
    finish = {"finish_reason": {"type": "stop", "matched": STOP}}
    path = write(tmp_path / "o.jsonl", *({**row, **finish} for row in [*rows, broken]))
    said = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"]).stdout
    assert re.search(r"^reasoning_closed broken", said, re.MULTILINE), said
    assert re.search(r"^remark of reasoning_closed i0", said, re.MULTILINE), said
    heads, *table = re.findall(r"^[\u2503\u2502](.*)[\u2503\u2502]$", said, re.MULTILINE)
    cells = [[cell.strip() for cell in re.split("[\u2503\u2502]", row)] for row in (heads, *table)]
    assert cells[0] == ["sample", "line", "breaks", "remark of"]
    assert cells[1][:3] == ["broken", "9", "reasoning_closed"] and "reasoning_closed" not in cells[1][3]
    assert cells[2][:3] == ["i0", "1", ""] and "reasoning_closed" in cells[2][3]


def test_in_a_pipe_a_law_is_whole_lines_without_padding(tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl", reply("x" * 300, BROKEN), reply("good", GOOD))
    lines = CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"]).stdout.splitlines()
    laws = lines[lines.index("Laws") + 1 : next(n for n, line in enumerate(lines) if "Worst samples" in line)]
    assert laws == [line.rstrip() for line in laws]
    at = laws.index("FAIL  stop_token_last: 2 judged, effect quarantine")
    assert laws[at + 1].startswith("      1 of 2 samples break it")
    assert "x" * 300 in laws[at + 1]


def test_samples_of_one_prompt_are_no_duplicates_unless_they_are_equal(tmp_path: Path, audit: Audit) -> None:
    outputs = [[A, END, letter, STOP] for letter in (A, B, C)]
    rows = [{"id": f"q1-{n}", "prompt_ids": T, "output_ids": output} for n, output in enumerate(outputs)]
    assert audit(write(tmp_path / "o.jsonl", *rows)).only["verdict"] == "pass"
    rows.append(rows[1] | {"id": "q1-3"})
    [found] = audit(write(tmp_path / "o.jsonl", *rows)).only["file_findings"]
    assert (found["law"], found["detail"]) == ("duplicates", "q1-3: the same prompt and output as q1-1")


def test_a_trainers_row_has_one_prompt(tmp_path: Path, audit: Audit) -> None:
    row = {"input_ids": T + GOOD, "loss_mask": [0] * len(T) + [1] * len(GOOD)}
    rows = [row | {"id": "other", "prompt_ids": [A, B, C]}, row | {"id": "same", "prompt_ids": T}]
    result = audit(write(tmp_path / "o.jsonl", *rows)).only
    assert [(refused["line"], refused["reason"]) for refused in result["refused"]] == [
        (1, "prompt_ids are not the input_ids that the loss_mask leaves out: which are the prompt?")
    ]
    assert result["samples"]["judged"] == 1


def test_two_rows_on_one_line_are_no_tear(tmp_path: Path, audit: Audit) -> None:
    path = tmp_path / "o.jsonl"
    one, two = (json.dumps({"id": name, "output_ids": GOOD}) for name in "ab")
    path.write_text(one + two)
    answered = audit(path)
    [refused] = answered.only["refused"]
    assert refused["reason"].startswith(f"goes on after its JSON value, at column {len(one) + 1}: a line holds one row")
    path.write_text(f"{one}\n{two[:-3]}")
    assert "a copy or a writer was cut off" in audit(path).only["file_findings"][0]["detail"]


def test_openais_old_word_for_a_call_ends_an_output(tmp_path: Path, audit: Audit) -> None:
    rows = [{"id": "a", "output_ids": GOOD, "finish_reason": "function_call"}]
    assert audit(write(tmp_path / "o.jsonl", *rows)).only["findings"] == {}


@pytest.mark.parametrize(("output", "word", "said"), [(GOOD, "PASS", True), (BROKEN, "FAIL", False)])
def test_what_no_law_verifies_is_said_of_a_file_that_passes(
    output: list[int], word: str, said: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "o.jsonl", reply("a", output))
    shown = " ".join(CliRunner().invoke(app, ["audit", str(path), "--profile", "kimi"]).stdout.split())
    assert word in shown
    assert ("Ordinary ids are not verified by these laws: replay" in shown) is said
