"""Tests in a real browser: what a person sees and clicks. Run them with ``make test-ui``."""
