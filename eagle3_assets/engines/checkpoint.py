"""Opens a local checkpoint for the embedded engine and says what it is.

What belongs here: loading, the hash of the weights, the stop ids, the limits of a model. Not here: generating.
"""

import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3_assets.config import TransformersEngineSettings
from eagle3_assets.engines.base import Description, EngineUnavailableError
from eagle3_assets.identity import files_sha256
from eagle3_assets.target import read_model_facts

WHOLE_HASH_BYTES = 1 << 30
"""Weights up to this size are hashed whole."""

_SAMPLE_BYTES = 1 << 20
_WEIGHTS = ("*.safetensors", "*.bin")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory."""

    model: Any
    device: Any
    """A ``torch.device``."""
    description: Description


def load(
    path: Path, tokenizer_path: Path | None, settings: TransformersEngineSettings, *, trust_remote_code: bool
) -> Loaded:
    """Loads a causal language model for generation.

    Its sampling defaults (``generation_config.json``) are put away: only what a request says counts.

    Args:
        path: directory of the checkpoint.
        tokenizer_path: directory of the tokenizer, where it is not the same.
        settings: device, dtype, threads.
        trust_remote_code: whether Python code that lies beside the model may run.

    Raises:
        EngineUnavailableError: torch or the checkpoint is missing or unusable.
        TargetError: its config files are.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EngineUnavailableError(
            f"the embedded engine needs PyTorch ({error}): pip install 'eagle3-assets[local]'"
        ) from error
    if not (path / "config.json").is_file():
        raise EngineUnavailableError(f"{path}: there is no checkpoint here: the file config.json is missing")
    files = weight_files(path)
    if not files:
        raise EngineUnavailableError(
            f"{path}: the checkpoint has no weights: no {' or '.join(_WEIGHTS)} beside config.json"
        )
    device = _device(settings.device)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    if not sys.stderr.isatty():
        # In a log file a bar is a line for each step.
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call] # transformers' own
    try:
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, settings.dtype),
            trust_remote_code=trust_remote_code,
            local_files_only=True,
            output_loading_info=True,
        )
        model, report = loaded
        model = model.to(device).eval()
    except (Exception, SystemExit) as error:  # the checkpoint's own code may ask for the end of this process
        raise EngineUnavailableError(f"{path}: cannot be loaded as a causal language model: {_said(error)}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise EngineUnavailableError(
            f"{path}: the weights lack {len(missing)} tensors, {missing[0]} among them; transformers fills them with "
            f"random numbers, and the model would talk nonsense"
        )
    facts = read_model_facts(path)
    # A model's class may know an end that its files do not name.
    stops = {*facts.stop_token_ids, *_ids(getattr(model.config.get_text_config(), "eos_token_id", None))}
    stops |= _tokenizer_stops(tokenizer_path or path, trust_remote_code=trust_remote_code)
    model.generation_config = transformers.GenerationConfig()  # type: ignore[no-untyped-call] # transformers' own
    description = Description(
        weights=weights_hash(path, files),
        stop_token_ids=tuple(sorted(stops)),
        vocab_size=facts.vocab_size,
        context_length=facts.context_length,
        environment={
            "engine": "transformers",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": str(device),
            "device_name": _device_name(device),
            "dtype": settings.dtype,
            "attention": str(getattr(model.config, "_attn_implementation", None)),
            "threads": torch.get_num_threads(),
            # In float32 the batch decides no token, and a smaller one after running out of memory needs no consent.
            **({} if settings.dtype == "float32" else {"batch_size": settings.batch_size}),
        },
    )
    return Loaded(model, device, description)


def weight_files(path: Path) -> list[Path]:
    """The files with a checkpoint's weights: all safetensors, or where there are none, all .bin."""
    return next((found for pattern in _WEIGHTS if (found := sorted(path.glob(pattern)))), [])


def weights_hash(path: Path, files: Iterable[Path]) -> str:
    """``sha256:...`` over a checkpoint's config and weights.

    The config is part of it since settings like rope scaling decide tokens as weights do. Up to 1 GiB everything is
    hashed. Above, that would cost minutes at each start: there it is the config, the weight index, and of each file the
    name, the size, the first and the last MiB. A file changed in its middle alone, with its size kept, is then not
    noticed.

    Args:
        path: directory of the checkpoint.
        files: its weight files.
    """
    files = list(files)
    small = [path / "config.json", *sorted(path.glob("*.index.json"))]
    if sum(file.stat().st_size for file in files) <= WHOLE_HASH_BYTES:
        return f"sha256:{files_sha256([*small, *files])}"
    total = hashlib.sha256(files_sha256(small).encode())
    for file in files:
        size = file.stat().st_size
        total.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as opened:
            total.update(opened.read(_SAMPLE_BYTES))
            opened.seek(max(0, size - _SAMPLE_BYTES), os.SEEK_SET)
            total.update(opened.read(_SAMPLE_BYTES))
    return f"sha256:{total.hexdigest()}"


def _tokenizer_stops(path: Path, *, trust_remote_code: bool) -> set[int]:
    if not any((path / name).is_file() for name in _TOKENIZER_FILES):
        return set()
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path, trust_remote_code=trust_remote_code, local_files_only=True
        )
    except (Exception, SystemExit) as error:
        raise EngineUnavailableError(
            f"{path}: the tokenizer here cannot be loaded, and its end-of-sequence id is one of the stop ids: "
            f"{_said(error)}"
        ) from error
    return _ids(tokenizer.eos_token_id)


def _ids(value: int | list[int] | None) -> set[int]:
    return set() if value is None else {value} if isinstance(value, int) else set(value)


def _device(name: str) -> Any:  # noqa: ANN401 - torch.device, but torch is not imported at module level
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise EngineUnavailableError(f"engine.device {name!r} cannot be used here: {_said(error)}") from error
    return device


def _device_name(device: Any) -> str:  # noqa: ANN401 - torch.device, as above
    import torch

    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return str(torch.backends.cpu.get_cpu_capability()) if device.type == "cpu" else str(device.type)


def _said(error: BaseException) -> str:
    """An error's first line, short enough for one message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
