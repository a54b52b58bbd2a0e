"""Every recipe loads, and holds against small stand-ins of its target and datasets, laid out as its comments say."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from eagle3_assets.cli import app
from eagle3_assets.config import load_config
from eagle3_assets_tests import own_code
from eagle3_assets_tests.conftest import write_jsonl
from eagle3_assets_tests.tokens import families

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.yaml"))

WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = {"id": "functions.get_weather:0", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
USER, ANSWER = {"role": "user", "content": "Is it cold?"}, {"role": "assistant", "content": "Yes."}
THOUGHT = {"from": "assistant", "value": "<think>\nTwo and two.\n</think>\n\n4"}

ROWS: dict[str, list[dict[str, Any]]] = {
    "data/glaive/glaive-function-calling-v2.json": [
        {
            "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if"
            f" required -\n{json.dumps(WEATHER)}",
            "chat": 'USER: Cold in Oslo?\n\n\nASSISTANT: <functioncall> {"name": "get_weather", "arguments": '
            '\'{"city": "Oslo"}\'} <|endoftext|>\n\n\nFUNCTION RESPONSE: -3\n\n\nASSISTANT: Yes. <|endoftext|>',
        }
    ],
    "data/ultrachat/data/train_sft-00000-of-00001.parquet": [
        {"prompt": USER["content"], "prompt_id": "a1", "messages": [USER, ANSWER, USER, ANSWER]}
    ],
    "data/magicoder/data-evol_instruct-decontaminated.jsonl": [
        {"instruction": "Add two numbers.", "response": "a + b"}
    ],
    "data/mixture-of-thoughts/all/train-00000-of-00001.parquet": [
        {
            "messages": [USER, {"role": "assistant", "content": "<think>\nSnow.\n</think>\n\nYes."}],
            "num_tokens": 9,
            "source": "s",
        }
    ],
    "data/openthoughts/data/train-00000-of-00001.parquet": [
        {"conversations": [{"from": "user", "value": "2+2?"}, THOUGHT], "question": "2+2?", "source": "s", "id": "7"}
    ],
    "data/agentic/data/interactive_agent.jsonl": [
        {
            "uuid": "b2",
            "messages": [
                {"role": "system", "content": "Help."},
                USER,
                {"role": "assistant", "content": None, "reasoning_content": "I ask.", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": CALL["id"], "content": "-3"},
                ANSWER,
            ],
            "tools": [{"type": "function", "function": WEATHER}],
        }
    ],
}
"""A row as each dataset has it, by the place that recipes have it at."""

QWEN_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    "{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def stand_in(recipe: Path, folder: Path) -> Path:
    """The recipe in a folder with the files that its comments download, each as small as can be."""
    config = folder / "eagle3.yaml"
    config.write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    target = load_config(config).target
    model = Path(target.model)
    if target.trust_remote_code:
        own_code.save_target(model)
    else:
        families.save_small_tokenizer(families.FAMILIES[target.profile], model)
        (model / "chat_template.jinja").write_text(QWEN_TEMPLATE, encoding="utf-8")
        settings = {"model_type": "qwen3", "vocab_size": 151_936, "max_position_embeddings": 40_960}
        (model / "config.json").write_text(json.dumps(settings))
    for name, rows in ROWS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pl.DataFrame(rows).write_parquet(path)
        elif path.suffix == ".json":
            path.write_text(json.dumps(rows), encoding="utf-8")
        else:
            write_jsonl(path, rows)
    if "sglang-venv" in recipe.read_text(encoding="utf-8"):
        python = folder / "sglang-venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
    return config


def checked(config: Path) -> Result:
    result = CliRunner().invoke(app, ["check-config", str(config)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_holds_against_stand_ins_of_what_it_downloads(recipe: Path, tmp_path: Path) -> None:
    config = stand_in(recipe, tmp_path)
    result = checked(config)
    assert result.exit_code == 0, result.stderr
    for dataset in load_config(config).datasets:
        row = next(line for line in result.stdout.splitlines() if line.startswith(f"│ {dataset.name} "))
        looked_at, refused, ready = [cell.strip() for cell in row.split("│")[5:8]]
        assert (looked_at, refused) == ("1", "0"), row
        assert int(ready) >= 1, row


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_before_anything_is_downloaded_each_place_is_named(recipe: Path, tmp_path: Path) -> None:
    config = tmp_path / "eagle3.yaml"
    config.write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    result = checked(config)
    assert result.exit_code == 1
    wrong = [line for line in result.stderr.splitlines() if line.startswith("WRONG")]
    assert "target.model: there is no directory" in wrong[0]
    named = [line.partition(": ")[0].removeprefix("WRONG ") for line in wrong]
    assert {dataset.name for dataset in load_config(config).datasets} <= set(named)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_what_a_recipe_downloads_is_where_it_reads(recipe: Path) -> None:
    text = recipe.read_text(encoding="utf-8")
    commands = re.findall(r"# *(hf download (?:[^\n]|\n *# {2,}--)*)", text)
    places = re.findall(r"--local-dir (\S+)", " ".join(commands))
    read = [*re.findall(r"source: (\S+)", text), *re.findall(r"model: (\S+)", text)]
    for place in places:
        assert any(entry == place or entry.startswith(f"{place}/") for entry in read), place
    for command in commands:
        assert ("--repo-type dataset --revision REVISION" in command) == ("--local-dir data/" in command), command
    for source in re.findall(r"source: (\S+)", text):
        assert any(source.startswith(place) for place in places), source


def test_the_kimi_recipe_is_for_about_100_000_prompts_of_at_most_10_000_tokens() -> None:
    config = load_config(next(recipe for recipe in RECIPES if "kimi" in recipe.name))
    assert {"B1_glaive", "B4_mixturethoughts", "B5_openthoughts"} <= {dataset.name for dataset in config.datasets}
    prompts = [int(d.sample or 0) * (4 if d.name == "B6_agentic" else 1) for d in config.datasets]  # four turns each
    assert sum(prompts) == 100_000
    for dataset in config.datasets:
        assert dataset.thinking
        assert (dataset.sampling.max_new_tokens, dataset.max_prompt_tokens) == (10_000, 10_000)
        assert 163_586 in dataset.sampling.stop_token_ids
