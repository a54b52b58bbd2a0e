"""What a person is told about a wrong config, and what a right one becomes."""

from pathlib import Path

import pytest

from eagle3_assets.config import CONFIG_VARIABLE, STORAGE_VARIABLE, ConfigError, SglangEngineSettings, load_config

GOOD = """
target: {model: model}
datasets:
  - {name: B1_glaive, source: data/glaive.jsonl, length_band: {median: [50, 200]}}
  - {name: B5, source: /data/five.jsonl, shards: 16}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "eagle3.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def fault(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_config(written(tmp_path, text))
    return str(raised.value)


def test_relative_paths_are_relative_to_the_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORAGE_VARIABLE, raising=False)
    config = load_config(written(tmp_path, GOOD + "storage: {root: out}\n"))
    assert config.target.model == str(tmp_path / "model")
    assert config.storage.root == str(tmp_path / "out")
    assert [d.source for d in config.datasets] == [(str(tmp_path / "data/glaive.jsonl"),), ("/data/five.jsonl",)]


def test_the_environment_names_another_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "elsewhere"))
    assert load_config(written(tmp_path, GOOD)).storage.root == str(tmp_path / "elsewhere")


def test_the_environment_names_the_config_and_the_demo_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    assert {d.name for d in load_config().datasets} == {"function_calling", "reasoning", "chat"}
    monkeypatch.setenv(CONFIG_VARIABLE, str(written(tmp_path, GOOD)))
    assert {d.name for d in load_config().datasets} == {"B1_glaive", "B5"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("datasets: []\n", "target: is required"),
        (
            "target: {model: m, modle: n}\ndatasets: [{name: a, source: s}]",
            "target.modle: is not a known key; allowed here:",
        ),
        ("target: {model: m}\ndatasets: [{name: a/b, source: s}]", "datasets[0].name: only letters, digits"),
        ("target: {model: m}\ndatasets: [{name: a-trial, source: s}]", "must not end like a shard"),
        (
            f"target: {{model: m}}\ndatasets: [{{name: {'a' * 300}, source: s}}]",
            "datasets[0].name: must have at most 128 characters, not 300: it names files",
        ),
        ("target: {model: m}\ndatasets: [{name: a-0of2, source: s}]", "must not end like a shard"),
        ("target: {model: m}\ndatasets: [{name: a, source: s}, {name: a, source: t}]", "given twice: a"),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s}, {name: A, source: t}]",
            "more than case; given twice: A, a",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, sampling: {temperature: yes}}]",
            "datasets[0].sampling.temperature: must be a number, not True",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, managed: {start_timeout_s: yes}}\n"
            "datasets: [{name: a, source: s}]",
            "engine.managed.start_timeout_s: must be a number, not True",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, managed: {environment: {SGLANG_RETURN_ORIGINAL_LOGPROB: 1}}}\n"
            "datasets: [{name: a, source: s}]",
            "engine.managed.environment: must not set SGLANG_RETURN_ORIGINAL_LOGPROB",
        ),
        (
            "target: &t {model: m, template_arguments: *t}\ndatasets: [{name: a, source: s}]",
            "an anchor (&name) is used inside of what it names (*name)",
        ),
        (
            "target: {model: m, template_arguments: {tokenize: true}}\ndatasets: [{name: a, source: s}]",
            "target.template_arguments: 'tokenize' cannot be given here: it says what rendering gives back",
        ),
        (
            "target: {model: m, template_arguments: {date: x, messages: []}}\ndatasets: [{name: a, source: s}]",
            "target.template_arguments: 'messages' cannot be given here: it comes from the source's rows",
        ),
        (
            "target: m\ndatasets: [{name: a, source: s}]",
            "target: must be a mapping, not 'm'",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, ignore_keys: story}]",
            "datasets[0].ignore_keys: must be a list, not 'story'",
        ),
        (
            "target: {model: m, template_arguments: {date: 2026-01-01}}\ndatasets: [{name: a, source: s}]",
            "target.template_arguments: must be what JSON can say, with text in quotes (YAML reads dates)",
        ),
        (
            "target: {model: m, template_arguments: {a: {1: x, b: y}}}\ndatasets: [{name: a, source: s}]",
            "target.template_arguments: must be what JSON can say",
        ),
        (
            "target: {model: m, template_arguments: {enable_thinking: false}}\ndatasets: [{name: a, source: s}]",
            "target.template_arguments: 'enable_thinking' cannot be given here: the dataset's `thinking` sets it",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, sampling: {top_k: 0}}]",
            "datasets[0].sampling.top_k: 0 would allow no token",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, sampling: {temprature: 1}}]",
            "datasets[0].sampling.temprature: is not a known key; allowed here: max_new_tokens, temperature",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, length_band: {median: [9, 1]}}]",
            "datasets[0].length_band.median: the band's low end 9 is above its high end 1",
        ),
        (
            "target: {model: m}\nengine: {batch_size: 0}\ndatasets: [{name: a, source: s}]",
            "engine.batch_size: input should be greater than or equal to 1, not 0",
        ),
        (
            "target: {model: m}\nengine: {kind: vllm}\ndatasets: [{name: a, source: s}]",
            "engine.kind: must be one of transformers, sglang, not 'vllm'",
        ),
        (
            "target: {model: m}\nengine: sglang\ndatasets: [{name: a, source: s}]",
            "engine: must be a mapping with the key kind, not 'sglang'",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, endpoint: x}\ndatasets: [{name: a, source: s}]",
            "engine.endpoint: is not a known key; allowed here: kind, endpoints, managed, api_key_env",
        ),
        (
            "target: {model: m}\nengine: {bach_size: 1}\ndatasets: [{name: a, source: s}]",
            "engine.bach_size: is not a known key; allowed here: kind, batch_size",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang}\ndatasets: [{name: a, source: s}]",
            "engine: needs either endpoints (servers that are running) or managed (one that a run starts), and",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, endpoints: []}\ndatasets: [{name: a, source: s}]",
            "engine: needs either endpoints",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, endpoints: ['http://h'], managed: {}}\n"
            "datasets: [{name: a, source: s}]",
            "engine: needs either endpoints",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, managed: {}, api_key_env: KEY}\n"
            "datasets: [{name: a, source: s}]",
            "engine: a managed server has no key and no certificate: leave out api_key_env and ca_file",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, managed: {argument: []}}\ndatasets: [{name: a, source: s}]",
            "engine.managed.argument: is not a known key; allowed here: python, arguments, environment, port",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, managed: {arguments: --tp 8}}\n"
            "datasets: [{name: a, source: s}]",
            "engine.managed.arguments: must be a list, not '--tp 8'",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, endpoints: ['gpu-1:30000']}\ndatasets: [{name: a, source: s}]",
            "engine.endpoints[0]: must be a server's URL, such as http://gpu-1:30000, not 'gpu-1:30000'",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, endpoints: ['http://h:1', 'http://h:1/']}\n"
            "datasets: [{name: a, source: s}]",
            "engine.endpoints: must differ: http://h:1 is given twice",
        ),
        (
            "target: {model: m}\nengine: {kind: sglang, endpoints: ['http://h'], api_key_header: 'X: y'}\n"
            "datasets: [{name: a, source: s}]",
            "engine.api_key_header: must be a header's name",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s}]\nlaw_effects: {conservation: warn}",
            "law_effects.conservation: is no law that can be lowered to warn; those are: messages_rendered,",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s}]\nlaw_effects: {tool_grammar: off}",
            "law_effects.tool_grammar: input should be 'warn', not False",
        ),
        (
            "target: {model: m, profile: nobody}\ndatasets: [{name: a, source: s}]",
            "target.profile: there is no profile 'nobody'; built in are: auto, kimi",
        ),
        (
            "target: {model: m, profile_overrides: {sotp: x}}\ndatasets: [{name: a, source: s}]",
            "target.profile: profile override 'sotp' is no fact of a profile; allowed are: stop",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: 's3://bucket/x.jsonl'}]",
            "datasets[0].source: must be a local path or an address that begins with hf://, not s3://bucket/x.jsonl",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, format: csv}]",
            "datasets[0].format: input should be 'auto', 'openai'",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: []}]",
            "datasets[0].source: tuple should have at least 1 item",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: 3}]",
            "datasets[0].source: must be a path, or a list of paths, not 3",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: [s, 3]}]",
            "datasets[0].source[1]: input should be a valid string, not 3",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: [s, 'hf://datasets/o/n@main/x']}]",
            "datasets[0].source[1]: must be pinned to a commit, hf://datasets/o/n@ and its 40 hex digits",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, sample: 0}]",
            "datasets[0].sample: must be a share above 0.0 and up to 1.0, or a count of 1 or more, not 0",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, sample: 1.5}]",
            "datasets[0].sample: must be a share above 0.0 and up to 1.0",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, sample: yes}]",
            "datasets[0].sample: must be a share above 0.0 and up to 1.0",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, limit: 0}]",
            "datasets[0].limit: input should be greater than or equal to 1",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, turns: every}]",
            "datasets[0].turns: input should be 'last', 'first' or 'all'",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, refused_limit: 2}]",
            "datasets[0].refused_limit: input should be less than or equal to 1",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, system_prompt: ' '}]",
            "datasets[0].system_prompt: must be a text that says something; leave it out for none, not ' '",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, max_prompt_tokens: 0}]",
            "datasets[0].max_prompt_tokens: input should be greater than or equal to 1",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s}]\nstorage: {root: 'foo://x'}",
            "storage.root: foo://x cannot be used: foo:// is no store that is known to keep two writers apart",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s}]\nstorage: {root: 's3://b/p?token=x'}",
            "storage.root: s3://b/p?token=...: must not hold credentials or options",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s}]\nstorage: {root: s, scratch: 's3://b/p'}",
            "storage.scratch: must be a local path, not s3://b/p",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s}]\nstorage: {root: s, lease_seconds: 1}",
            "storage.lease_seconds: input should be greater than or equal to 10",
        ),
        (
            "target: {model: m}\ndatasets: [{name: a, source: s, shards: yes}]",
            "datasets[0].shards: input should be a valid",
        ),
        ("target: {model: m}\ntarget: {model: n}\ndatasets: [{name: a, source: s}]", "the key 'target' stands twice"),
        ("target: {model: ~nobody-here/m}\ndatasets: [{name: a, source: s}]", "'~nobody-here/m' is no path: "),
        ("a: " + "[" * 5000, "is nested too deeply"),
        ("a: 2024-99-99", "holds a value that cannot be read: month must be in 1..12"),
        ("- a\n- b\n", "must be a mapping"),
        ("a: [1\n", "is not YAML"),
        ("", "must be a mapping"),
    ],
)
def test_a_wrong_config_names_the_key_and_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    message = fault(tmp_path, text)
    assert said in message
    assert message.startswith((str(tmp_path / "eagle3.yaml"), "'~nobody-here"))


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--host", "must not have --host: the server listens on 127.0.0.1 only"),
        ("--port=3", "must not have --port: it is engine.managed.port"),
        ("--model", "must not have --model: the model is target.model"),
        ("--trust_remote_code", "must not have --trust_remote_code: it follows target.trust_remote_code"),
        ("--allow-auto", "must not have --allow-auto: it cuts prompts without saying so"),
        ("--api-key=hunter2", "must not have --api-key: everybody on this machine could read it"),
        ("--config", "must not have --config: a file could hold arguments that are refused here"),
        ("--nnodes", "must not have --nnodes: a managed server runs on this machine only"),
    ],
)
def test_an_argument_that_clashes_or_changes_tokens_is_refused(tmp_path: Path, argument: str, said: str) -> None:
    message = fault(
        tmp_path,
        f"target: {{model: m}}\nengine: {{kind: sglang, managed: {{arguments: [--tp, 8, '{argument}']}}}}\n"
        "datasets: [{name: a, source: s}]",
    )
    assert f"engine.managed.arguments: {said}" in message
    assert len(message.splitlines()) == 1 and "hunter2" not in message


def test_a_managed_server_is_read_and_its_interpreters_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "venv").symlink_to("/usr")
    text = GOOD + (
        "engine: {kind: sglang, managed: {python: venv/bin/python, arguments: [--tp, 8, --mem-fraction-static, 0.9, "
        "--model-loader-extra-config, '{}'], environment: {OMP_NUM_THREADS: 1}}}\n"
    )
    engine = load_config(written(tmp_path, text)).engine
    assert isinstance(engine, SglangEngineSettings) and engine.managed is not None
    assert engine.managed.python == str(tmp_path / "venv/bin/python")
    assert engine.managed.arguments[:4] == ("--tp", "8", "--mem-fraction-static", "0.9")
    assert engine.managed.environment == {"OMP_NUM_THREADS": "1"}
    named = load_config(written(tmp_path, GOOD + "engine: {kind: sglang, managed: {python: python3.12}}\n")).engine
    assert isinstance(named, SglangEngineSettings) and named.managed and named.managed.python == "python3.12"


def test_a_password_in_an_endpoint_is_refused_and_not_repeated(tmp_path: Path) -> None:
    message = fault(
        tmp_path,
        "target: {model: m}\nengine: {kind: sglang, endpoints: ['http://me:hunter2@h:1']}\n"
        "datasets: [{name: a, source: s}]",
    )
    assert "engine.endpoints: must hold no user and password" in message and "hunter2" not in message


def test_an_sglang_engine_is_read_and_its_authority_is_relative_to_the_config(tmp_path: Path) -> None:
    text = GOOD + "engine: {kind: sglang, endpoints: ['https://gpu-1/sgl/', 'http://gpu-2:30000'], ca_file: ca.pem}\n"
    engine = load_config(written(tmp_path, text)).engine
    assert isinstance(engine, SglangEngineSettings)
    assert engine.endpoints == ("https://gpu-1/sgl", "http://gpu-2:30000")
    assert engine.ca_file == str(tmp_path / "ca.pem")


def test_every_fault_has_its_line(tmp_path: Path) -> None:
    message = fault(tmp_path, "target: {model: m, x: 1}\ndatasets: [{name: a, source: s, shards: many}]")
    assert len(message.splitlines()) == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "none.yaml")


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(tmp_path / "c.yaml")


def test_places_of_a_source_are_made_absolute_and_addresses_are_kept(tmp_path: Path) -> None:
    address = f"hf://datasets/owner/name@{'0' * 40}/data/*.parquet"
    (tmp_path / "eagle3.yaml").write_text(
        "target: {model: m}\n"
        f"datasets: [{{name: a, source: [data/**/*.jsonl, ../b.json, '{address}'], sample: 1.0}}]",
        encoding="utf-8",
    )
    [dataset] = load_config(tmp_path / "eagle3.yaml").datasets
    assert dataset.source == (str(tmp_path / "data/**/*.jsonl"), str(tmp_path.parent / "b.json"), address)
    assert isinstance(dataset.sample, float)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("https://user:hunter2@h/x.jsonl", "https://...@h/x.jsonl"),
        ("s3://K:p@hunter2@b/x", "s3://...@b/x"),
        ("hf://user:hunter2@datasets/o/n", "hf://...@datasets/o/n"),
        ("hf://o/n?token=hunter2&x=1", "hf://o/n?token=...&x=..."),
    ],
)
def test_a_password_in_a_place_is_not_repeated(tmp_path: Path, place: str, shown: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(written(tmp_path, f"target: {{model: demo}}\ndatasets: [{{name: a, source: '{place}'}}]\n"))
    assert "hunter2" not in str(raised.value)
    assert str(raised.value).endswith(f"not {shown}")
    root = f"nothing{place[place.index(':') :]}"
    text = f"target: {{model: '{place}'}}\nstorage: {{root: '{root}'}}\ndatasets: [{{name: a, source: x}}]\n"
    with pytest.raises(ConfigError) as raised:
        load_config(written(tmp_path, text))
    assert "hunter2" not in str(raised.value)


def test_a_link_as_a_source_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "0a1b2c").write_bytes(b"{}\n")
    (tmp_path / "train.jsonl").symlink_to(tmp_path / "0a1b2c")
    (tmp_path / "here").symlink_to(tmp_path, target_is_directory=True)
    config = load_config(written(tmp_path, "target: {model: demo}\ndatasets: [{name: a, source: here/train.jsonl}]\n"))
    assert config.datasets[0].source == (str(tmp_path / "train.jsonl"),)


@pytest.mark.parametrize(
    "alerts",
    [
        "https://hooks.example.org/T0/hunter2",
        "{webhook_env: 'https://hooks.example.org/T0/hunter2'}",
        "{webhook: 'https://hooks.example.org/T0/hunter2'}",
        "{webhook_env: ['https://hooks.example.org/T0/hunter2']}",
        "{webhook_env: W, ui_url: 'https://me:hunter2@ui'}",
        "{webhook_env: W, ui_url: 'https://ui/?token=hunter2'}",
        "{webhook_env: W, ui_url: 'javascript:hunter2'}",
    ],
)
def test_a_webhook_in_the_config_is_refused_and_not_repeated(tmp_path: Path, alerts: str) -> None:
    message = fault(tmp_path, f"{GOOD}alerts: {alerts}\n")
    assert ": alerts" in message and "hunter2" not in message


def test_alerts_and_metrics_are_read(tmp_path: Path) -> None:
    text = f"{GOOD}alerts: {{webhook_env: HOOK, ui_url: 'https://ui.example.org/x/'}}\nmetrics: {{directory: prom}}\n"
    config = load_config(written(tmp_path, text))
    assert (config.alerts.webhook_env, config.alerts.ui_url) == ("HOOK", "https://ui.example.org/x")
    assert config.metrics.directory == str(tmp_path / "prom")
    assert "metrics.directory: must be a local path" in fault(tmp_path, f"{GOOD}metrics: {{directory: 's3://b/x'}}\n")
