"""`python -m labkit` is the `labkit` command."""

from labkit.cli.main import main

main(prog_name="labkit")
