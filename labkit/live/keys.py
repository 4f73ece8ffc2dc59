"""Bearer keys: who a caller is and in which tier; kept as hashes, never as keys."""

import hashlib
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labkit.core.messages import Tier
from labkit.paths import home_dir

PREFIX = "lk"
SECRET_BYTES = 32
"""A key is drawn at random with this much in it, so one SHA-256 is enough: nobody can try them."""

DIGEST_BYTES = hashlib.sha256().digest_size

FILE = "keys.json"


class KeyProblem(ValueError):
    """A key or a file of keys that will not do: says which, and the remedy."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a key stands for; the client never says any of it itself.

    `digest` is the SHA-256 of the whole key as hex digits. `created` and `revoked` are seconds of
    the wall clock, `revoked` None while the key works. An `admin` may break things on purpose.
    """

    id: str
    digest: str
    tenant: str
    tier: int = int(Tier.FREE)
    admin: bool = False
    created: int = 0
    revoked: int | None = None


def digest_of(key: bytes) -> str:
    """The hash under which a key is kept."""
    return hashlib.sha256(key).hexdigest()


def make(tenant: str, tier: int = Tier.FREE, admin: bool = False) -> tuple[str, Account]:
    """A new key, shown once, and the account to keep."""
    _check_tenant(tenant)
    name = secrets.token_hex(4)
    key = f"{PREFIX}-{name}-{secrets.token_urlsafe(SECRET_BYTES)}"
    created = int(time.time())
    return key, Account(name, digest_of(key.encode()), tenant, int(tier), admin, created)


_KINDS: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "digest": (str,),
    "tenant": (str,),
    "tier": (int,),
    "admin": (bool,),
    "created": (int,),
    "revoked": (int, type(None)),
}


def _checked(account: Account) -> Account:
    """The same, if every field may be as it is; raises `ValueError` naming the one that may not."""
    for name, kinds in _KINDS.items():
        value = getattr(account, name)
        # By the very type: True is an int, and no tier.
        if type(value) not in kinds:
            words = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{name} {value!r} of key {account.id!r}: must be {words}")
    if account.tier not in [*Tier]:
        tiers = ", ".join(str(int(tier)) for tier in Tier)
        raise ValueError(f"tier {account.tier} of key {account.id!r}: must be one of {tiers}")
    if len(bytes.fromhex(account.digest)) != DIGEST_BYTES:
        raise ValueError(f"digest of key {account.id!r}: must have {2 * DIGEST_BYTES} hex digits")
    _check_tenant(account.tenant)
    return account


def _check_tenant(tenant: str) -> None:
    if not (tenant.isprintable() and 1 <= len(tenant) <= 64):
        raise KeyProblem(f"tenant {tenant!r}: give a name of 1 to 64 printable characters")


class Keyring:
    """The accounts that may come in, found by the hash of what a caller shows.

    A caller chooses the key and not its hash, so the time a look-up takes tells nothing about any
    key that is kept.
    """

    def __init__(self, accounts: Iterable[Account] = ()) -> None:
        self._by_digest = {
            bytes.fromhex(account.digest): account
            for account in accounts
            if account.revoked is None
        }

    def __len__(self) -> int:
        return len(self._by_digest)

    def find(self, key: bytes) -> Account | None:
        """The account of a key; None for one that is unknown or revoked."""
        return self._by_digest.get(hashlib.sha256(key).digest())


class KeyFile:
    """The file of keys: one person's, readable by them alone, replaced in one step."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home_dir() / FILE

    def read(self) -> list[Account]:
        """Every account, revoked ones too; none where there is no file.

        Raises `KeyProblem` when it is not a file of keys.
        """
        try:
            rows = json.loads(self.path.read_text(encoding="utf-8"))["keys"]
            accounts = [_checked(Account(**row)) for row in rows]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise KeyProblem(
                f"{self.path} is not a file of keys ({error}); mend it, or move it away and add "
                "the keys again"
            ) from error
        return accounts

    def changed_at(self) -> int:
        """When it was last written, in nanoseconds; 0 where there is none."""
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return 0

    def add(self, tenant: str, tier: int = Tier.FREE, admin: bool = False) -> tuple[str, Account]:
        """Make a key and keep its hash; the key itself is in what is returned and nowhere else."""
        key, account = make(tenant, tier, admin)
        self._write([*self.read(), account])
        return key, account

    def revoke(self, name: str) -> Account:
        """End a key by its id; raises `KeyProblem` when there is none that works."""
        accounts = self.read()
        for number, account in enumerate(accounts):
            if account.id == name and account.revoked is None:
                accounts[number] = replace(account, revoked=int(time.time()))
                self._write(accounts)
                return accounts[number]
        working = ", ".join(a.id for a in accounts if a.revoked is None) or "none"
        raise KeyProblem(f"no working key has the id {name!r}; there are: {working}")

    def _write(self, accounts: Sequence[Account]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"keys": [asdict(account) for account in accounts]}, indent=1)
        # mkstemp makes a file that only its owner may read.
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(name, self.path)


def demo() -> tuple[dict[str, str], list[Account]]:
    """Three keys for a server on this machine alone: `paid`, `free` and `admin`, by name."""
    made = {
        "paid": make("paid-demo", Tier.PAID),
        "free": make("free-demo", Tier.FREE),
        "admin": make("admin-demo", Tier.PAID, admin=True),
    }
    return {name: key for name, (key, _) in made.items()}, [account for _, account in made.values()]
