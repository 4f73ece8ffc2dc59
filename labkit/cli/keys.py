"""`labkit keys`: who may come in through the front door."""

import time
from pathlib import Path
from typing import Any

import click

from labkit.cli.common import Problem, emit, json_option

TIERS = ("paid", "free")

file_option = click.option(
    "--keys",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The file of keys.  [default: keys.json in the lab's own folder]",
)


@click.group()
def keys() -> None:
    """Make, list and revoke bearer keys; only their hashes are kept.

    A running server reads the file again within a second.
    """


@keys.command()
@click.option("--tenant", default="default", show_default=True, help="Whose key it is.")
@click.option("--tier", type=click.Choice(TIERS), default="free", show_default=True)
@click.option("--admin", is_flag=True, help="May break GPUs on purpose, under /lab/.")
@click.argument("stray", nargs=-1, metavar="")
@file_option
@json_option
def add(
    tenant: str, tier: str, admin: bool, stray: tuple[str, ...], path: Path | None, as_json: bool
) -> None:
    """Make a key and show it, this once."""
    if stray:
        raise Problem(f"{stray[0]!r}: say whose key it is with --tenant {stray[0]}")
    from labkit.live.keys import KeyFile, KeyProblem

    try:
        key, account = KeyFile(path).add(tenant, TIERS.index(tier), admin)
    except (KeyProblem, OSError) as error:
        raise Problem(str(error)) from error
    report = {"key": key, "id": account.id, "tenant": tenant, "tier": tier, "admin": admin}
    emit(
        report,
        as_json,
        lambda: [("key", key), ("id", account.id), ("tenant", tenant), ("tier", tier)],
    )
    if not as_json:
        click.echo("It is kept as a hash and cannot be shown again.")


@keys.command("list")
@file_option
@json_option
def list_(path: Path | None, as_json: bool) -> None:
    """Show whose keys there are; never the keys."""
    from labkit.live.keys import KeyFile, KeyProblem

    try:
        accounts = KeyFile(path).read()
    except KeyProblem as error:
        raise Problem(str(error)) from error
    rows: list[dict[str, Any]] = [
        {
            "id": account.id,
            "tenant": account.tenant,
            "tier": TIERS[account.tier],
            "admin": account.admin,
            "created": _date(account.created),
            "revoked": None if account.revoked is None else _date(account.revoked),
        }
        for account in accounts
    ]

    def table() -> list[tuple[str, str, str]]:
        return [(row["id"], row["tenant"], f"{row['tier']}, {_state(row)}") for row in rows]

    emit({"keys": rows}, as_json, table)  # type: ignore[arg-type]
    if not rows and not as_json:
        click.echo("No keys yet: labkit keys add")


@keys.command()
@click.argument("key_id")
@file_option
def revoke(key_id: str, path: Path | None) -> None:
    """End the key with this id."""
    from labkit.live.keys import KeyFile, KeyProblem

    try:
        account = KeyFile(path).revoke(key_id)
    except (KeyProblem, OSError) as error:
        raise Problem(str(error)) from error
    click.echo(f"{account.id} of {account.tenant} no longer works.")


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _state(row: dict[str, Any]) -> str:
    if row["revoked"]:
        return f"revoked {row['revoked']}"
    return "admin" if row["admin"] else "works"
