"""`python -m watersmeet.cli` is the command."""

from watersmeet.cli.app import app

app()
