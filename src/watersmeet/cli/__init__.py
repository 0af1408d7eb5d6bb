"""The command: watersmeet demo | run | explain | bench | reproduce."""

from watersmeet.cli.app import app

__all__ = ["app"]
