"""``python -m eagle3_assets.cli``."""

from eagle3_assets.cli import main

main()
