"""What a person is told of a value that cannot be: the key's path, and what is allowed there.

What belongs here: pydantic's errors in the config's own words. Not here: loading.
"""

from typing import Any

from pydantic import BaseModel, ValidationError

from eagle3_assets.config.addresses import without_secrets
from eagle3_assets.config.engines import ENGINES
from eagle3_assets.config.models import Eagle3Config
from eagle3_assets.tokens.safe_text import quoted

_KINDS = {
    "tuple_type": "must be a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a mapping"),
}
"""What a value must be by its kind, as a YAML file has it and not Python."""


def faults_of(error: ValidationError) -> list[str]:
    """One line for each fault."""
    faults = error.errors()
    places = [fault["loc"] for fault in faults]
    # A list whose items are all wrong is reported as empty too: the items' own faults say more.
    return [
        f"{_key(place)}{_explained(fault)}"
        for fault, place in zip(faults, places, strict=True)
        if not any(other != place and other[: len(place)] == place for other in places)
    ]


def _key(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in _walk(location)[0]:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "(top level)"


def _explained(fault: Any) -> str:  # noqa: ANN401 - pydantic's error dictionary
    kind, message = fault["type"], str(fault["msg"]).removeprefix("Value error, ")
    if kind == "missing":
        return ": is required"
    if kind == "extra_forbidden":
        owner = _walk(tuple(fault["loc"][:-1]))[1]
        allowed = f"; allowed here: {', '.join(owner.model_fields)}" if owner else ""
        return f": is not a known key{allowed}"
    if kind == "union_tag_invalid":
        return f".kind: must be one of {', '.join(ENGINES)}, not {_shown(fault['ctx']['tag'])}"
    if kind == "union_tag_not_found":
        return f": must be a mapping with the key kind, not {_shown(fault['input'])}"
    message = _KINDS.get(kind, message)
    said = f": {message[:1].lower()}{message[1:]}"
    names_the_keys = kind == "value_error" and isinstance(fault["input"], dict)
    # A webhook's URL is a secret as a whole, and may stand where only the name of its variable should.
    if names_the_keys or fault["loc"][:1] == ("alerts",):
        return said
    return f"{said}, not {_shown(fault['input'])}"


def _walk(location: tuple[int | str, ...]) -> tuple[list[int | str], type[BaseModel] | None]:
    """Follows pydantic's location of a fault.

    Returns:
        the keys as they stand in the file (pydantic names the kind of engine among them), and the settings model which
        holds the keys at that place.
    """
    keys: list[int | str] = []
    models: tuple[type[BaseModel], ...] = (Eagle3Config,)
    for part in location:
        if isinstance(part, int):
            keys.append(part)
        elif len(models) > 1 and part in ENGINES:
            models = (ENGINES[part],)
        else:
            keys.append(part)
            field = models[0].model_fields.get(part) if models else None
            models = inner_models(field.annotation) if field else ()
    return keys, models[0] if models else None


def inner_models(annotation: Any) -> tuple[type[BaseModel], ...]:  # noqa: ANN401 - a type form
    """The settings models that a field's type holds, alone, in a tuple or in a union; none where it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for arg in getattr(annotation, "__args__", ()) for model in inner_models(arg))


def _shown(value: Any) -> str:  # noqa: ANN401 - raw input
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    return quoted(without_secrets(value) if isinstance(value, str) else value)
