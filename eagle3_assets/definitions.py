"""What Dagster loads: the definitions of the config that the environment names."""

from eagle3_assets.build import build_defs
from eagle3_assets.config import load_config
from eagle3_assets.project import Project

defs = build_defs(Project(load_config()))
