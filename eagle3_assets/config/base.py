"""What all settings share, and the two forms that several of them use.

What belongs here: the base model, forms of single values. Not here: any setting.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _no_truth_value(value: Any) -> Any:  # noqa: ANN401 - raw input
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Number = Annotated[float, BeforeValidator(_no_truth_value)]
"""A float; ``yes`` and ``true``, which would count as 1, are none."""


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, values cannot be changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
