"""The assets on S3: the same files as on a local disk, credentials nowhere, faults said clearly."""

import hashlib
import re
import socket
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner
from upath import UPath

from eagle3_assets import files
from eagle3_assets.cli import app
from eagle3_assets.config import STORAGE_VARIABLE, load_config
from eagle3_assets.exports.locking import LEASE
from eagle3_assets.files import (
    create,
    delete,
    exists,
    names_in,
    place_of,
    publish,
    publish_new,
    read_bytes,
    write_text,
)
from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.project import Project
from eagle3_assets.running import materialize
from eagle3_assets.storage.files import sealed_generations
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows
from eagle3_assets_tests.scale.conftest import CREDENTIALS

pytestmark = pytest.mark.scale

SERVERS = re.compile(rb"\(\d+ rows from http[^)]*\)")
"""Where a page says which servers answered."""


def files_below(root: UPath) -> dict[str, bytes]:
    """Every file by its path below a place."""
    base = root.path.rstrip("/")
    return {path.removeprefix(base): root.fs.cat_file(path) for path in root.fs.find(base)}


def told_of(project: Project, *, undisturbed: bool = True) -> dict[str, object]:
    """Each file's hash; of generations the rows, without how long each took, and the files' names.

    Args:
        project: whose corpus.
        undisturbed: one engine made it and nothing was killed. Otherwise which server answered and how often it was
            asked is as it came, and a sealed file may stay that a run had written and nowhere named yet.
    """
    told: dict[str, object] = {}
    for path, content in files_below(project.layout.root).items():
        if re.search(r"/raw_generations/.*(parquet|current.json)$", path):
            if undisturbed:
                told[path] = None
        elif ".journals/" not in path:
            told[path] = hashlib.sha256(content if undisturbed else SERVERS.sub(b"", content)).hexdigest()
    for key in (path.name for path in (project.layout.root / "raw_generations").iterdir()):
        rows = scan_sealed(sealed_generations(project.layout, key)).drop("latency_s")
        told[f"rows of {key}"] = (rows if undisturbed else rows.drop("endpoint", "attempts")).collect().to_dicts()
    return told


def run(project: Project, instance: dg.DagsterInstance) -> None:
    [done] = materialize(project, ["d"], instance)
    assert done.good, done


def test_a_name_is_given_once(bucket: UPath, tmp_path: Path) -> None:
    place = bucket / "x"
    assert create(place, b"1") and not create(place, b"2")
    assert read_bytes(place) == b"1"
    for content, taken in ((b"new", True), (b"n" * 100, False)):
        temporary = tmp_path / "file"
        temporary.write_bytes(content)
        if taken:
            with pytest.raises(FileExistsError):
                publish_new(temporary, place)
            assert read_bytes(place) == b"1" and temporary.exists()
        else:
            publish_new(temporary, bucket / "y")
            assert read_bytes(bucket / "y") == content and not temporary.exists()
    assert names_in(bucket) == ["x", "y"]
    delete(place)
    delete(place)
    assert not exists(place) and names_in(bucket / "nowhere") == []


def test_a_store_that_never_takes_a_write_is_given_up(
    bucket: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"1")
    monkeypatch.setattr(files, "WRITE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as hangs:  # the kernel connects for it
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{hangs.getsockname()[1]}")
        bucket.fs.clear_instance_cache()
        place = place_of("s3://hangs/corpus/x")
        for write in (
            lambda: create(place, b"1"),
            lambda: write_text(place, "1"),
            lambda: publish(tmp_path / "file", place),
            lambda: publish_new(tmp_path / "file", place),
        ):
            with pytest.raises(TimeoutError):
                write()
    bucket.fs.clear_instance_cache()


def test_what_another_client_writes_is_seen_at_once(bucket: UPath) -> None:
    """Client libraries keep listings; another machine's new pointer must not hide behind one."""
    name, key = bucket.path.split("/", 1)
    other = pytest.importorskip("boto3").client("s3")
    for content in (b"1", b"22", b"333"):
        other.put_object(Bucket=name, Key=f"{key}/{len(content)}", Body=content)
        other.put_object(Bucket=name, Key=f"{key}/same", Body=content)
        assert len(names_in(bucket)) == len(content) + 1
        assert read_bytes(bucket / "same") == content
    other.put_object(Bucket=name, Key=f"{key}/folder/", Body=b"")  # what a console makes for a new folder
    assert names_in(bucket / "folder") == []
    assert "folder" in names_in(bucket)


def test_the_pipeline_makes_the_same_files_as_on_a_disk(
    bucket: UPath,
    make_project: ProjectMaker,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, sampled = demo_rows("chat", 6), {"sampling": {"max_new_tokens": 60, "temperature": 1.0, "seed": 5}}
    here = make_project(rows, dataset=sampled)
    run(here, instance)
    monkeypatch.setenv(STORAGE_VARIABLE, str(bucket))
    monkeypatch.chdir(tmp_path)
    there = Project(load_config(tmp_path / "eagle3.yaml"))
    run(there, instance)

    assert told_of(here) == told_of(there)
    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"].encode()
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert str(bucket).encode() in b"".join(kept)  # Dagster's databases name the place
    assert not any(secret in content for content in (*files_below(bucket).values(), *kept))


@pytest.mark.timeout(900)
def test_every_partition_of_the_demo_is_the_same_on_s3(
    bucket: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for number, root in enumerate((str(tmp_path / "data"), str(bucket))):
        monkeypatch.setenv(STORAGE_VARIABLE, root)
        monkeypatch.chdir(tmp_path)
        home = tmp_path / f"home-{number}"
        home.mkdir()
        project = Project(load_config())
        with dg.DagsterInstance.local_temp(str(home)) as instance:
            assert all(run.good for run in materialize(project, list(project.partitions), instance))
        told.append(told_of(project))
    assert len(told[0]) > 50
    assert told[0] == told[1]


def test_an_export_on_a_store_verifies_and_goes_on(
    bucket: UPath, make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    project = make_project(demo_rows("chat", 6))
    run(project, instance)
    config = str(tmp_path / "eagle3.yaml")
    to = f"{bucket}/export"

    def cli(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return done.output

    cli("export", "d", "--to", to, "--config", config)
    assert "kept from before" in cli("export", "d", "--to", to, "--config", config)
    assert "The export is as it was made." in cli("verify", to)
    where = ["whereabouts", "d", "--totals", "--config", config]
    assert cli(*where, "--export", to) != cli(*where)
    nothing = CliRunner().invoke(app, [*where, "--export", f"{bucket}/nothing"])
    assert nothing.exit_code == 2 and "holds no manifest.json" in nothing.output
    cli("stats", "d", "--html", f"{bucket}/page.html", "--config", config)
    assert read_bytes(bucket / "page.html").startswith(b"<!")
    cli("export", "d", "--to", str(tmp_path / "export"), "--config", config)
    local = files_below(UPath(tmp_path / "export"))
    # Where there are no locks, what keeps others out is a file, which stays.
    there = {name: content for name, content in files_below(bucket / "export").items() if LEASE not in name}
    assert there == local
    assert CliRunner().invoke(app, ["export", "d", "--to", to, "--push", "a/b", "--config", config]).exit_code == 2


def test_a_store_that_cannot_be_reached_is_said_in_a_line(
    bucket: UPath, make_project: ProjectMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket.fs.clear_instance_cache()
    make_project(storage={"root": str(bucket)})
    told = CliRunner().invoke(app, ["stats", "d", "--config", str(tmp_path / "eagle3.yaml")])
    assert told.exit_code == 2
    assert "Unable to locate credentials" in told.output and "Traceback" not in told.output
