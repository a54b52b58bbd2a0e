"""Tests beyond one machine: a real S3 API, several processes."""
