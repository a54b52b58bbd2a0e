import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets_tests.tokens import kimi

Line = dict[str, Any] | bytes


@dataclass(frozen=True)
class Answered:
    """What the command said of its files."""

    exit_code: int
    files: list[dict[str, Any]]
    stderr: str

    @property
    def only(self) -> dict[str, Any]:
        [result] = self.files
        return result


Audit = Callable[..., Answered]


@pytest.fixture
def audit() -> Audit:
    def run(*files: Path, options: tuple[str, ...] = ("--profile", "kimi")) -> Answered:
        result = CliRunner().invoke(app, ["audit", *map(str, files), *options, "--json"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Answered(result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr)

    return run


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kimi-audit")
    kimi.save_tokenizer(directory)
    return directory


def jsonl(*lines: Line) -> bytes:
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


def write(path: Path, *lines: Line) -> Path:
    """Packed as the name says."""
    data = jsonl(*lines)
    packed = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(path.suffix)
    path.write_bytes(packed(data) if packed else data)
    return path


def reply(sample: str, output: list[int], matched: object = kimi.IM_END, **other: Any) -> dict[str, Any]:
    """A line with what SGLang's /generate replies, and the prompt that was sent."""
    finish = {"type": "stop", "matched": matched}
    meta = {
        "finish_reason": finish,
        "prompt_tokens": len(kimi.THINKING_PROMPT),
        "completion_tokens": len(output),
        "cached_tokens": 0,
        "weight_version": "default",
    }
    return {
        "sample_id": sample,
        "prompt_ids": kimi.THINKING_PROMPT,
        "output_ids": output,
        "meta_info": meta | other.pop("meta", {}),
        **other,
    }


def many_good(count: int) -> list[dict[str, Any]]:
    """So many lines that nothing is to be said of, each an answer of its own."""
    ids = ([*kimi.letters("a"), kimi.END_THINK, *kimi.letters(f"{n * 7919}"), kimi.IM_END] for n in range(count))
    return [reply(f"good-{n}", output) for n, output in enumerate(ids)]


def without_remarks() -> dict[str, dict[str, Any]]:
    """The genuine samples that no law has a remark on."""
    remarked = ("cut", "implicit", "tools-then-text")
    return {sample: row for sample, row in kimi.genuine().items() if not sample.startswith(remarked)}


def genuine_lines() -> list[dict[str, Any]]:
    """The genuine samples as lines, without those that a law has a remark on."""
    rows = {
        sample: row
        for sample, row in kimi.genuine().items()
        if not sample.startswith(("cut", "implicit", "tools-then-text"))
    }
    return [
        {
            "sample_id": sample,
            "prompt_ids": row["prompt_ids"],
            "output_ids": row["output_ids"],
            "completion_tokens": row["completion_tokens"],
            "prompt_tokens": row["server_prompt_tokens"],
            "finish_reason": {"type": row["finish_type"], "matched": row["output_ids"][-1]},
        }
        for sample, row in rows.items()
    ]


def errors(result: Mapping[str, Any], sample: str) -> set[str]:
    return {law for law, severity in result["findings"].get(sample, {}).items() if severity == "error"}
