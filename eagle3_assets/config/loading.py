"""The config file: how it is found, read, checked and its places made absolute.

What belongs here: loading. Not here: what may stand in it (``models``), how a wrong value is explained (``faults``).
"""

import json
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from eagle3_assets.config.addresses import HUB_SCHEME, fault_of_store, parse_address, without_secrets
from eagle3_assets.config.engines import SglangEngineSettings
from eagle3_assets.config.faults import faults_of
from eagle3_assets.config.models import Eagle3Config
from eagle3_assets.config.operating import Metrics

CONFIG_VARIABLE = "EAGLE3_CONFIG"
STORAGE_VARIABLE = "EAGLE3_STORAGE"


class ConfigError(Exception):
    """The config cannot be used. The text names the file, the key and what is allowed."""


def config_path() -> Path:
    """The config file: ``$EAGLE3_CONFIG``, or the packaged demo's."""
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else Path(str(files("eagle3_assets.demo") / "eagle3.yaml"))


def load_config(path: Path | None = None) -> Eagle3Config:
    """Reads and checks a config; relative paths in it come back absolute.

    Args:
        path: the file; without one, the one that :func:`config_path` finds.

    Raises:
        ConfigError: unreadable, not YAML, or a key is wrong; one line for each fault with the key's path.
    """
    path = path or config_path()
    try:
        raw = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror} (set {CONFIG_VARIABLE} to your config)") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {_one_line(str(error))}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None
    except ValueError as error:  # such as a date that is none, or a number of thousands of digits
        raise ConfigError(f"{path}: holds a value that cannot be read: {_one_line(str(error))}") from None
    if _refers_to_itself(raw):
        raise ConfigError(f"{path}: an anchor (&name) is used inside of what it names (*name)")
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping with the keys target and datasets, not {type(raw).__name__}")
    try:
        config = Eagle3Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in faults_of(error))) from None
    faults = [*_unknown_names(config), *_unreachable_places(config)]
    if faults:
        raise ConfigError("\n".join(f"{path}: {line}" for line in faults))
    return _resolved(config, path.resolve().parent)


def _refers_to_itself(raw: object) -> bool:
    try:
        json.dumps(raw, default=str, skipkeys=True)
    except ValueError:
        return True
    return False


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a key stands once: of two, the loader would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        doubled = next((key for i, key in enumerate(keys) if key in keys[:i] and key != "<<"), None)
        if doubled is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {doubled!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _unknown_names(config: Eagle3Config) -> list[str]:
    """Names of laws and profiles that do not exist."""
    # Laws read settings: importing them above would go in a circle.
    from eagle3_assets.tokens.laws import lowerable_laws
    from eagle3_assets.tokens.profile import check_profile

    lowerable = lowerable_laws()
    faults = [
        f"law_effects.{name}: is no law that can be lowered to warn; those are: {', '.join(lowerable)}"
        for name in config.law_effects
        if name not in lowerable
    ]
    fault = check_profile(config.target.profile, config.target.profile_overrides)
    return [*faults, f"target.profile: {fault}"] if fault else faults


def _unreachable_places(config: Eagle3Config) -> list[str]:
    """Addresses that nothing here can open."""
    target = config.target
    local = {
        "target.model": target.model,
        "target.tokenizer": target.tokenizer,
        "target.chat_template": target.chat_template,
        "storage.scratch": config.storage.scratch,
        "metrics.directory": config.metrics.directory,
    }
    faults = [
        f"{key}: must be a local path, not {without_secrets(place)}"
        for key, place in local.items()
        if place and "://" in place
    ]
    for i, dataset in enumerate(config.datasets):
        for j, place in enumerate(dataset.source):
            key = f"datasets[{i}].source" + (f"[{j}]" if len(dataset.source) > 1 else "")
            faults += [f"{key}: {fault}" for fault in [_fault_of_source(place)] if fault]
    root = os.environ.get(STORAGE_VARIABLE) or config.storage.root
    if root and "://" in root and (fault := fault_of_store(root)):
        faults.append(f"storage.root: {fault}")
    return faults


def _fault_of_source(place: str) -> str | None:
    if place.startswith(HUB_SCHEME):
        try:
            parse_address(place)
        except ValueError as error:
            return str(error)
    elif "://" in place:
        return f"must be a local path or an address that begins with {HUB_SCHEME}, not {without_secrets(place)}"
    return None


def _resolved(config: Eagle3Config, base: Path) -> Eagle3Config:
    def local(text: str) -> str:
        try:
            return text if "://" in text else str((base / Path(text).expanduser()).resolve())
        except (RuntimeError, ValueError) as error:  # a home directory of nobody, a zero byte
            raise ConfigError(f"{text!r} is no path: {error}") from None

    def source(text: str) -> str:
        resolved, place = local(text), Path(text)
        if "://" in text or place.name in ("", "..") or place.name.startswith("~"):
            return resolved
        # The last link is not followed: a file of a cache has its name, and so its ending, from the link alone.
        return str(Path(local(str(place.parent))) / place.name)

    engine = config.engine
    if isinstance(engine, SglangEngineSettings) and engine.ca_file:
        engine = engine.model_copy(update={"ca_file": local(engine.ca_file)})
    if isinstance(engine, SglangEngineSettings) and engine.managed and engine.managed.python:
        python = engine.managed.python
        if os.sep in python:
            # A virtual environment's interpreter is a link: followed, it would be the one without the environment.
            python = str((base / Path(python).expanduser()).absolute())
        engine = engine.model_copy(update={"managed": engine.managed.model_copy(update={"python": python})})
    target = config.target
    model = str(files("eagle3_assets.demo") / "model") if target.model == "demo" else local(target.model)
    root = os.environ.get(STORAGE_VARIABLE)
    if root:
        root = root if "://" in root else str(Path(root).absolute())
    elif config.storage.root:
        root = local(config.storage.root)
    else:
        root = str(Path.cwd() / ".eagle3" / "data")
    return config.model_copy(
        update={
            "target": target.model_copy(
                update={
                    "model": model,
                    "tokenizer": local(target.tokenizer) if target.tokenizer else None,
                    "chat_template": local(target.chat_template) if target.chat_template else None,
                }
            ),
            "engine": engine,
            "storage": config.storage.model_copy(
                update={"root": root, "scratch": local(config.storage.scratch) if config.storage.scratch else None}
            ),
            "metrics": Metrics(directory=local(directory) if (directory := config.metrics.directory) else None),
            "datasets": tuple(d.model_copy(update={"source": tuple(map(source, d.source))}) for d in config.datasets),
        }
    )


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
