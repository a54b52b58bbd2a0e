"""What Dagster loads: the definitions of the config that the environment names."""

import dagster as dg

from eagle3_assets.build import build_defs
from eagle3_assets.config import ConfigError, load_config
from eagle3_assets.project import Project


def _definitions() -> dg.Definitions:
    try:
        config = load_config()
    except ConfigError as error:
        raise _without_stack(error) from None
    return build_defs(Project(config))


def _without_stack(error: ConfigError) -> Exception:
    """An error that Dagster shows by its message alone: frames of this file say nothing to who wrote the config.

    Dagster has no public way to say so; this is the form in which it passes on errors of other processes.
    """
    from dagster._core.errors import DagsterUserCodeProcessError
    from dagster_shared.error import SerializableErrorInfo

    shown = SerializableErrorInfo(message=f"{error}\n", stack=[], cls_name=type(error).__name__)
    return DagsterUserCodeProcessError(  # type: ignore[no-untyped-call] # Dagster does not type it
        str(error), user_code_process_error_infos=[shown]
    )


defs = _definitions()
