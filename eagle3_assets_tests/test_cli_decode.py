import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result
from upath import UPath

from eagle3_assets import sample_sources
from eagle3_assets.cli import app
from eagle3_assets.config import Sampling, Target
from eagle3_assets.contract import SAMPLE_FINDINGS
from eagle3_assets.generation.sealed import CURRENT, Pointer, write_identity
from eagle3_assets.identity import Identity
from eagle3_assets.interchange import Record, encode_record
from eagle3_assets.storage.layout import Layout
from eagle3_assets.target import load_target
from eagle3_assets.tokens.facts import output_facts
from eagle3_assets.tokens.strata import choose, first_look
from eagle3_assets_tests.tokens import kimi

COMMAND = [sys.executable, "-m", "eagle3_assets.cli", "decode"]


HIDDEN = "a\u200bb\u202ec"


def spelled(text: str) -> list[int]:
    """Byte by byte, in the ids that the test tokenizer has for bytes."""
    from tokenizers import pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(byte_level.alphabet())
    return [1000 + alphabet.index(c) for piece, _ in byte_level.pre_tokenize_str(text) for c in piece]


def ids_of(text: str) -> list[int]:
    return [*spelled(text), kimi.END_THINK, kimi.HELLO, kimi.IM_END]


@dataclass(frozen=True)
class Place:
    """A project of one dataset with nothing made yet."""

    root: Path
    model: Path

    @property
    def config(self) -> Path:
        return self.root / "eagle3.yaml"

    @property
    def file(self) -> Path:
        return self.root / "raw_responses.jsonl"

    def write(self, *lines: Record | bytes) -> Path:
        self.file.write_bytes(b"".join(line if isinstance(line, bytes) else encode_record(line) for line in lines))
        return self.file

    def seal(self, frame: pl.DataFrame, key: str = "chats", tokenizer: str | None = None) -> None:
        directory = UPath(Layout.at(str(self.root / "data")).generations(key))
        directory.mkdir(parents=True)
        target = load_target(Target(model=str(self.model)))
        identity = Identity(
            weights="w",
            tokenizer=tokenizer or target.tokenizer_sha256,
            chat_template="c",
            thinking=True,
            sampling=Sampling(),
            stop_token_ids=(),
        )
        write_identity(directory, identity)
        name = f"{identity.fingerprint}-1.parquet"
        frame.write_parquet(str(directory / name), row_group_size=4)
        pointer = Pointer(
            file=name,
            fingerprint=identity.fingerprint,
            rows=len(frame),
            size_bytes=(directory / name).stat().st_size,
            generated=len(frame.filter(pl.col("status") == "generated")),
            failed=0,
            refused=0,
            environment=None,
            journal=None,
            sealed_at="2026-01-01T00:00:00Z",
        )
        (directory / CURRENT).write_text(pointer.model_dump_json())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kimi")
    kimi.save_tokenizer(directory)
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    (directory / "config.json").write_text(
        json.dumps({"model_type": "kimi_k25", "vocab_size": kimi.VOCAB_SIZE, "max_position_embeddings": 4096})
    )
    return directory


@pytest.fixture
def place(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EAGLE3_STORAGE", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "eagle3.yaml").write_text(
        f"target: {{model: {model}}}\nstorage: {{root: data}}\ndatasets:\n  - {{name: chats, source: chats.jsonl}}\n"
    )
    monkeypatch.setenv("EAGLE3_CONFIG", str(tmp_path / "eagle3.yaml"))
    return Place(tmp_path, model)


@pytest.fixture
def decode(place: Place) -> Callable[..., Result]:
    del place  # the project that the command finds

    def invoke(*arguments: object) -> Result:
        result = CliRunner().invoke(app, ["decode", *map(str, arguments)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def headers(result: Result) -> list[str]:
    return [line for line in result.stdout.splitlines() if line.startswith("=====")]


def names(result: Result) -> list[str]:
    return [line.split()[1].removeprefix("sample_id=") for line in headers(result)]


def records(lengths: Sequence[int]) -> list[Record]:
    return [Record(f"s{n}", ids_of("x" * length), length + 3) for n, length in enumerate(lengths)]


class TestFile:
    def test_shows_exactly_header_and_text(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(Record("c17-1-0", ids_of("so be it"), 11))
        result = decode(place.file)
        assert result.stdout == (
            "===== sample_id=c17-1-0 tokens=11 response@8 =====\nso be it</think>hello<|im_end|>\n"
        )
        assert result.stderr == f"tokenizer: {place.model} (the config's target)\n"
        assert result.exit_code == 0

    def test_broken_lines_are_named_and_skipped(self, place: Place, decode: Callable[..., Result]) -> None:
        good = records([1, 2])
        place.write(good[0], b"{oops\n", b'{"sample_id": "b", "output_ids": [1.5], "completion_tokens": 1}\n', good[1])
        result = decode(place.file)
        assert names(result) == ["s0", "s1"]
        assert f"{place.file}:2: is not JSON: " in result.stderr
        assert f"{place.file}:3: (sample 'b') output_ids[0] is 1.5, not a whole number\n" in result.stderr
        assert result.exit_code == 1

    def test_a_sample_that_is_there_twice_is_shown_twice_and_named(
        self, place: Place, decode: Callable[..., Result]
    ) -> None:
        first, second = records([1, 2])
        place.write(first, second, Record("s0", ids_of("other"), 8))
        for arguments in ((), ("--id", "s0")):
            result = decode(place.file, *arguments)
            assert names(result).count("s0") == 2
            assert f"{place.file}:3: holds sample 's0' again, after line 1\n" in result.stderr
            assert result.exit_code == 1

    def test_the_first_ones_are_shown_without_reading_on_and_it_says_so(
        self, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.write(*records([1, 2, 3]), b"broken\n")
        result = decode(place.file, "-n", 2)
        assert names(result) == ["s0", "s1"]
        assert result.stderr.endswith(f"{place.file}: read to line 2; what comes after it was not checked\n")
        assert result.exit_code == 0
        assert "not checked" not in decode(place.file, "-n", 4).stderr

    def test_spread_reads_all_and_shows_short_to_long(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(*records([50, 3, 40, 10, 20, 30, 1]), b"broken\n")
        result = decode(place.file, "--spread", "-n", 3)
        assert names(result) == ["s6", "s4", "s0"]
        assert f"{place.file}:8: is not JSON" in result.stderr
        assert result.exit_code == 1

    def test_ids_choose_and_an_unknown_one_is_an_error(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(*records([1, 2, 3, 4, 5, 6, 7, 8]))
        assert names(decode(place.file, "--id", "s7", "--id", "s2", "-n", 1)) == ["s2", "s7"]
        result = decode(place.file, "--id", "s1", "--id", "nobody")
        assert names(result) == ["s1"]
        assert "holds no readable sample 'nobody'" in result.stderr
        assert result.exit_code == 2

    def test_an_id_is_found_as_it_is_and_as_it_is_shown(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(Record(HIDDEN, ids_of("x"), 4), *records([1, 2]))
        shown = names(decode(place.file, "-n", 1))[0]
        assert shown == "a<U+200B>b<U+202E>c"
        for asked in (shown, HIDDEN):
            result = decode(place.file, "--id", asked)
            assert (result.exit_code, names(result)) == (0, [shown])

    def test_rows_and_prompt(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(Record("s", [kimi.HELLO, 999_999], 2, [kimi.IM_USER]))
        assert decode(place.file, "--prompt").stdout.splitlines()[1:] == [
            "----- prompt: tokens=1 -----",
            "<|im_user|>",
            "----- output -----",
            "hello<id 999999>",
        ]
        assert decode(place.file, "--ids").stdout.splitlines()[1:] == ["0   22931  'hello'", "1  999999  <id 999999>"]

    def test_json_has_the_text_as_it_is(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(Record("s", ids_of("\x1b[31m <b> \u202e"), 20, [kimi.IM_USER]), Record("t", [kimi.HELLO], 1))
        first, second = (json.loads(line) for line in decode(place.file, "--json", "--prompt").stdout.splitlines())
        assert first["text"] == "\x1b[31m <b> \u202e</think>hello<|im_end|>"
        assert (first["sample_id"], first["tokens"], first["prompt"]) == (
            "s",
            len(ids_of("\x1b[31m <b> \u202e")),
            "<|im_user|>",
        )
        assert second == {
            "sample_id": "t",
            "tokens": 1,
            "reasoning_end": -1,
            "finish_type": None,
            "text": "hello",
            "prompt": None,
        }
        assert "\\u001b" in decode(place.file, "--json").stdout
        [with_ids] = (
            json.loads(line) for line in decode(place.file, "--json", "--ids", "--id", "t").stdout.splitlines()
        )
        assert with_ids["output_ids"] == [kimi.HELLO]

    def test_a_page_is_of_a_partition(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(Record("t", [kimi.HELLO], 1))
        result = decode(place.file, "--html", place.root / "page.html")
        assert result.exit_code == 2
        assert "--html shows a partition" in result.stderr

    @pytest.mark.parametrize("content", [b"", b"\n\n", b"nonsense\n" * 3])
    def test_nothing_to_decode_is_an_error(self, content: bytes, place: Place, decode: Callable[..., Result]) -> None:
        place.write(content)
        for arguments in ((), ("--spread",)):
            result = decode(place.file, *arguments)
            assert result.exit_code == 2
            assert "holds no sample that can be decoded" in result.stderr
            assert not result.stdout

    def test_standard_input(self, place: Place) -> None:
        place.write(*records([2]))
        for given, code, said in (
            (place.file.read_bytes(), 0, "===== sample_id=s0 tokens=5 response@2 ====="),
            (b"", 2, "standard input was empty"),
        ):
            done = subprocess.run([*COMMAND, "-"], input=given, capture_output=True, check=False)
            assert (done.returncode, said in (done.stdout + done.stderr).decode()) == (code, True)

    def test_a_count_that_the_engine_did_not_give_is_no_fault(
        self, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.write(json.dumps({"sample_id": "s", "output_ids": [kimi.HELLO]}).encode() + b"\n")
        assert (decode(place.file).exit_code, names(decode(place.file))) == (0, ["s"])

    def test_of_a_file_that_is_something_else_a_hundred_lines_are_named(
        self, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.write(b"nonsense\n" * 1000)
        result = decode(place.file)
        assert result.stderr.count(": is not JSON") == sample_sources.REPORTED
        assert f"{place.file}: 900 more faults are not named" in result.stderr

    def test_a_file_needs_no_suffix_and_a_missing_one_is_said(
        self, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.write(*records([1]))
        assert names(decode(place.file.rename(place.root / "answers"))) == ["s0"]
        result = decode("gone.jsonl")
        assert (result.exit_code, result.stderr) == (2, "there is no file gone.jsonl\n")

    def test_a_pipe_cannot_be_spread(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(*records([1]))
        with subprocess.Popen(["cat", place.file], stdout=subprocess.PIPE) as cat:  # noqa: S607
            assert cat.stdout
            result = decode(f"/dev/fd/{cat.stdout.fileno()}", "--spread")
        assert result.exit_code == 2
        assert "it cannot be a pipe" in result.stderr

    def test_a_hostile_sample_and_line_stay_harmless(self, place: Place, decode: Callable[..., Result]) -> None:
        evil = "\x1b]0;owned\x07\n===== sample_id=fake\u202e"
        hostile = [1000 + byte for byte in range(256)] * 2
        broken = json.dumps({"sample_id": evil, "output_ids": [evil], "completion_tokens": 1}).encode() + b"\n"
        place.write(Record(evil, hostile, 512), broken)
        result = decode(place.file, "--prompt")
        assert not [c for c in result.stdout + result.stderr if ord(c) < 32 and c not in "\n\t"]
        assert "\u202e" not in result.stdout + result.stderr
        assert len(headers(result)) == 1 and len([line for line in result.stdout.splitlines() if "fake" in line]) == 1

    @pytest.mark.parametrize("number", ["0", "-3", "x"])
    def test_n_is_one_or_more(self, number: str, place: Place, decode: Callable[..., Result]) -> None:
        place.write(*records([1]))
        result = decode(place.file, "-n", number)
        assert result.exit_code == 2
        assert "-n" in result.stderr

    def test_spread_and_id_exclude_each_other(self, place: Place, decode: Callable[..., Result]) -> None:
        place.write(*records([1]))
        assert decode(place.file, "--spread", "--id", "s0").exit_code == 2


class TestTokenizer:
    def test_a_directory_needs_no_config_at_all(
        self, place: Place, model: Path, tmp_path: Path, decode: Callable[..., Result]
    ) -> None:
        place.write(*records([2]))
        place.config.unlink()
        kimi.save_tokenizer(tmp_path / "bare")
        for directory in (model, tmp_path / "bare"):
            result = decode(place.file, "--tokenizer", directory)
            assert headers(result) == ["===== sample_id=s0 tokens=5 response@2 ====="]
            assert result.stderr == f"tokenizer: {directory} (--tokenizer)\n"
        assert decode(place.file).exit_code == 2

    def test_without_a_fitting_profile_there_is_one_note(
        self, place: Place, tmp_path: Path, decode: Callable[..., Result]
    ) -> None:
        save_plain_tokenizer(tmp_path / "plain")
        place.write(Record("s", [0, 1], 2))
        result = decode(place.file, "--tokenizer", tmp_path / "plain")
        assert result.stdout == "===== sample_id=s tokens=2 response@-1 =====\nab\n"
        assert result.stderr.count("response@-1") == 1
        assert result.exit_code == 0

    def test_unusable_directories_are_said(self, place: Place, tmp_path: Path, decode: Callable[..., Result]) -> None:
        place.write(*records([1]))
        (tmp_path / "empty").mkdir()
        for directory in ("nowhere", "empty"):
            result = decode(place.file, "--tokenizer", directory)
            assert result.exit_code == 2
            assert directory in result.stderr
            assert not result.stdout

    def test_code_that_will_run_is_named_first(
        self, place: Place, tmp_path: Path, decode: Callable[..., Result]
    ) -> None:
        place.write(*records([1]))
        kimi.save_tokenizer(tmp_path / "own")
        (tmp_path / "own" / "tokenization_own.py").touch()
        quiet = decode(place.file, "--tokenizer", tmp_path / "own")
        assert "WARNING" not in quiet.stderr
        loud = decode(place.file, "--tokenizer", tmp_path / "own", "--trust-remote-code")
        assert "WARNING: trusting remote code" in loud.stderr
        assert "all your rights: tokenization_own.py (sha256 e3b0c44298fc1c14)" in loud.stderr
        assert names(loud) == ["s0"]


class TestPartition:
    @pytest.fixture
    def rows(self) -> pl.DataFrame:
        failed = pl.DataFrame(
            [{"sample_id": "failed", "status": "failed", "reason": "server: 400", "prompt_ids": [1]}],
            schema=kimi.generations().schema,
        )
        return pl.concat([failed, kimi.generations()])

    def test_shows_the_first_generated_ones(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.seal(rows)
        result = decode("chats", "-n", 2)
        assert names(result) == ["answer", "parallel-calls"]
        assert headers(result)[0] == "===== sample_id=answer tokens=6 response@2 ====="
        assert result.stderr == f"tokenizer: {place.model} (the config's target)\n"
        assert result.exit_code == 0
        assert len(names(decode("chats", "-n", 100))) == len(rows) - 1

    def test_spread_by_id_and_prompt(self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]) -> None:
        place.seal(rows)
        tokens = [
            int(header.split("tokens=")[1].split()[0]) for header in headers(decode("chats", "--spread", "-n", 4))
        ]
        lengths = rows["output_ids"].list.len().drop_nulls()
        assert tokens == sorted(tokens)
        assert (tokens[0], tokens[-1]) == (lengths.min(), lengths.max())
        result = decode("chats", "--id", "last", "--id", "answer", "--prompt")
        assert names(result) == ["answer", "last"]
        assert "tokens=9 -----\n<|im_user|>user<|im_middle|>hello<|im_end|>" in result.stdout
        assert result.stdout.count("</think>") == 2

    def test_an_id_is_found_as_it_is_and_as_it_is_shown(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        hidden = pl.col("sample_id").replace({"answer": HIDDEN, "failed": f"{HIDDEN}\n"})
        place.seal(rows.with_columns(sample_id=hidden))
        for asked in ("a<U+200B>b<U+202E>c", HIDDEN):
            result = decode("chats", "--id", asked)
            assert (result.exit_code, names(result)) == (0, ["a<U+200B>b<U+202E>c"])
        failed = decode("chats", "--id", "a<U+200B>b<U+202E>c\u21b5")
        assert failed.exit_code == 2
        assert "has no output (failed, server: 400)" in failed.stderr

    def test_equally_long_samples_are_the_five_previews_in_whatever_order_they_are_stored(
        self, place: Place, decode: Callable[..., Result]
    ) -> None:
        genuine = kimi.generations().filter(pl.col("sample_id") == "answer")
        rows = pl.concat([genuine.with_columns(sample_id=pl.lit(f"s{n}")) for n in range(23)])
        target = load_target(Target(model=str(place.model)))
        previews = first_look(choose(output_facts([rows], target.profile), found_nothing()), ())["sample_id"].to_list()
        assert len(previews) == 5
        place.seal(rows)
        assert names(decode("chats", "--spread")) == previews
        for order in (rows, rows.reverse()):
            place.write(*(Record(s, ids, 6) for s, ids in order.select("sample_id", "output_ids").iter_rows()))
            assert names(decode(place.file, "--spread")) == previews

    def test_a_cut_off_output_says_so(self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]) -> None:
        place.seal(rows)
        [cut] = headers(decode("chats", "--id", "cut-in-reasoning"))
        assert cut.endswith(" response@-1 cut off =====")
        assert json.loads(decode("chats", "--id", "cut-in-reasoning", "--json").stdout)["finish_type"] == "length"

    def test_a_generated_row_that_lacks_its_ids_hides_no_other(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        lost = rows["sample_id"][1]
        place.seal(
            rows.with_columns(
                output_ids=pl.when(pl.col("sample_id") == lost).then(None).otherwise("output_ids"),
            )
        )
        for spread in ([], ["--spread"]):
            shown = decode("chats", "-n", 3, *spread)
            assert shown.exit_code == 0 and len(names(shown)) == 3 and lost not in names(shown)
        asked = decode("chats", "--id", lost)
        assert asked.exit_code == 2
        assert f"sample {lost!r} has no output (generated, without ids)" in asked.stderr

    def test_an_id_without_output_and_an_unknown_one_are_told_apart(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.seal(rows)
        failed = decode("chats", "--id", "failed")
        assert (failed.exit_code, names(failed)) == (2, [])
        assert "sample 'failed' has no output (failed, server: 400)" in failed.stderr
        unknown = decode("chats", "--id", "answer", "--id", "nobody")
        assert (unknown.exit_code, names(unknown)) == (2, ["answer"])
        assert "holds no sample 'nobody'" in unknown.stderr

    def test_nothing_generated_or_sealed_or_no_such_partition(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.seal(rows.filter(pl.col("status") == "failed"))
        for partition, said in (
            ("chats", "none of its 1 rows was generated"),
            ("chats-trial", "nothing is sealed; materialize raw_generations of chats-trial first"),
            ("caths", "there is no file 'caths', and no partition is named 'caths'; there are: chats, chats-trial"),
        ):
            result = decode(partition)
            assert (result.exit_code, result.stdout) == (2, "")
            assert said in result.stderr
            assert result.stderr.splitlines()[-1].endswith(said)

    def test_a_directory_of_the_same_name_is_no_file(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.seal(rows)
        (place.root / "chats").mkdir()
        assert decode("chats").exit_code == 0

    def test_a_damaged_pointer_is_one_message(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.seal(rows)
        (place.root / "data" / "raw_generations" / "chats" / CURRENT).write_text("{")
        result = decode("chats")
        assert result.exit_code == 2
        assert "is not a pointer to a sealed file" in result.stderr

    def test_another_tokenizer_than_the_one_that_generated_is_warned_of(
        self, rows: pl.DataFrame, place: Place, decode: Callable[..., Result]
    ) -> None:
        place.seal(rows, tokenizer="0" * 64)
        result = decode("chats", "-n", 1)
        assert "WARNING: these outputs were generated with other tokenizer files" in result.stderr
        assert result.exit_code == 0

    def test_a_wrong_config_is_said_by_key(self, place: Place, decode: Callable[..., Result]) -> None:
        place.config.write_text("target: {modle: x}\ndatasets: []\n")
        result = decode("chats", "--config", place.config)
        assert result.exit_code == 2
        assert "target.modle: is not a known key" in result.stderr


class TestProcess:
    def test_plain_text_in_a_pipe_and_colours_only_where_they_are_forced(self, place: Place) -> None:
        place.write(*records([3]))
        forced = CliRunner(env={"FORCE_COLOR": "1", "TERM": "xterm"}).invoke(app, ["decode", str(place.file)])
        assert "\x1b[36m</think>\x1b[0m" in forced.stdout
        environment = os.environ | {"FORCE_COLOR": "1", "NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}
        result = subprocess.run([*COMMAND, place.file], capture_output=True, env=environment, check=False)
        assert result.stdout == b"===== sample_id=s0 tokens=6 response@3 =====\nxxx</think>hello<|im_end|>\n"
        assert b"\x1b" not in result.stderr
        assert result.returncode == 0

    def test_imports_neither_dagster_nor_torch(self, place: Place) -> None:
        place.seal(kimi.generations())
        place.write(*records([1]))
        code = (
            "import sys\nfrom eagle3_assets.cli import main\nsys.argv = ['eagle3-assets', 'decode', sys.argv[1]]\n"
            "try:\n    main()\nexcept SystemExit as end:\n"
            "    print(end.code, [m for m in ('dagster', 'torch') if sys.modules.get(m)], file=sys.stderr)"
        )
        for source in ("chats", place.file):
            result = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True, check=False)
            assert result.stderr == f"tokenizer: {place.model} (the config's target)\n0 []\n"

    def test_a_reader_that_goes_away_is_no_error_to_shout_about(self, place: Place) -> None:
        place.write(*records([2_000] * 200))
        with subprocess.Popen(
            [*COMMAND, place.file, "-n", "200"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout
            assert process.stderr
            assert process.stdout.readline().startswith(b"===== sample_id=s0")
            process.stdout.close()
            said = process.stderr.read()
        assert process.returncode == 141
        assert said == f"tokenizer: {place.model} (the config's target)\n".encode()

    def test_a_full_disk_and_a_closed_output_are_no_traceback(self, place: Place) -> None:
        file = place.write(*records([1]))
        with Path("/dev/full").open("w") as full:
            result = subprocess.run([*COMMAND, file], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        said = result.stderr.splitlines()[1:]
        assert (result.returncode, said) == (2, ["the output cannot be written: No space left on device"])
        closed = [sys.executable, "-c", "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"]
        result = subprocess.run([*closed, *COMMAND, file], stderr=subprocess.PIPE, text=True, check=False)
        assert (result.returncode, result.stderr.splitlines()[1:]) == (0, [])

    def test_a_terminal_gets_colours_and_nothing_else_of_an_escape(self, place: Place) -> None:
        place.write(Record("s", [*spelled("\x1b[1m"), kimi.END_THINK, *spelled("[bold]x[/]")], 15))
        coloured = self.in_terminal([*COMMAND, str(place.file)], {"TERM": "xterm"})
        assert b"\x1b[36m</think>\x1b[0m[bold]x[/]" in coloured
        assert b"<U+001B>[1m" in coloured
        for plain in ({"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}):
            assert b"\x1b" not in self.in_terminal([*COMMAND, str(place.file)], plain)

    @staticmethod
    def in_terminal(command: list[str], environment: dict[str, str]) -> bytes:
        ours, theirs = pty.openpty()
        with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=os.environ | environment) as process:
            os.close(theirs)
            said = b""
            try:
                while chunk := os.read(ours, 4096):
                    said += chunk
            except OSError:
                pass  # how Linux says that the other side is closed
        os.close(ours)
        assert process.returncode == 0
        return said


def found_nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=SAMPLE_FINDINGS)


def save_plain_tokenizer(directory: Path) -> None:
    """A tokenizer without any token that a profile would know."""
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.decoder = decoders.ByteLevel()
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
