"""Documentation is held against what it describes."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

from eagle3_assets.config import REFUSED_ARGUMENTS, Dataset, load_config
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.prompts.rows import NotedRow, read_partition

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("*/README.md")])


def test_generated_pages_are_what_the_code_says() -> None:
    for name, page in runpy.run_path(str(ROOT / "docs" / "generate.py"))["PAGES"].items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), f"docs/{name}: run python docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_config_in_the_docs_is_valid(page: Path, tmp_path: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        if "datasets:" in block:
            (tmp_path / "eagle3.yaml").write_text(block, encoding="utf-8")
            assert load_config(tmp_path / "eagle3.yaml").datasets
        else:
            assert yaml.safe_load(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_readmes_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)) <= targets, (
            page
        )


def test_the_arguments_refused_for_a_managed_server_are_the_documented_ones() -> None:
    text = (ROOT / "docs" / "sglang.md").read_text(encoding="utf-8")
    table = text.partition("These arguments are refused:")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\|([^|]*)\|", table, re.MULTILINE) for name in re.findall(r"--[a-z][a-z-]*", row)
    }
    assert named == set(REFUSED_ARGUMENTS)


def _json_blocks() -> list[str]:
    """The blocks of JSON in the page about prompts."""
    return re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "prompts.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_turns_in_the_docs_are_those_that_are_generated(tmp_path: Path) -> None:
    path = tmp_path / "source.jsonl"
    path.write_text(_json_blocks()[0], encoding="utf-8")
    page = (ROOT / "docs" / "prompts.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(last|first|all)` \| (.*) \|$", page, re.MULTILINE))
    for turns in ("last", "first", "all"):
        dataset = Dataset(name="d", source=str(path), turns=turns)
        made = read_partition(dataset_partitions(dataset)[0], 20).rows["sample_id"]
        assert " ".join(f"`{sample}`" for sample in made) == told[turns]


def test_the_refused_rows_in_the_docs_are_what_is_written(tmp_path: Path) -> None:
    _, source, refused = _json_blocks()
    path = tmp_path / "source.jsonl"
    path.write_text(source, encoding="utf-8")
    told: list[NotedRow] = []
    found = read_partition(dataset_partitions(Dataset(name="d", source=str(path)))[0], 20, told.append)
    assert "".join(row.model_dump_json() + "\n" for row in told) == refused
    assert len(found.rows) == 1
