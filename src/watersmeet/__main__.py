"""`python -m watersmeet` is the command."""

from watersmeet.cli.app import app

app(prog_name="watersmeet")
