"""The command: watersmeet demo | run | explain, and what other distributions add."""

from watersmeet.cli.app import app

__all__ = ["app"]
