"""Keys: shown once, kept as hashes, found by hash alone."""

import json
import stat

import pytest
from click.testing import CliRunner

from labkit.cli.main import main
from labkit.core.messages import Tier
from labkit.live.keys import Account, KeyFile, KeyProblem, Keyring, make

from .conftest import until


def test_a_key_is_found_and_a_near_miss_is_not():
    key, account = make("acme", Tier.PAID)
    ring = Keyring([account])
    assert ring.find(key.encode()) == account
    assert ring.find(key[:-1].encode()) is None
    assert ring.find(account.digest.encode()) is None
    assert ring.find(b"") is None


def test_no_two_keys_are_alike_and_none_is_short():
    keys = {make("acme")[0] for _ in range(100)}
    assert len(keys) == 100
    assert min(map(len, keys)) >= 50


def test_the_file_holds_hashes_and_is_its_owners_alone(tmp_path):
    file = KeyFile(tmp_path / "deep" / "keys.json")
    key, account = file.add("acme", Tier.PAID)
    text = file.path.read_text()
    assert key not in text
    assert key.rpartition("-")[2] not in text
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.read() == [account]


def test_a_revoked_key_is_known_and_no_longer_works(tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    key, account = file.add("acme")
    assert file.revoke(account.id).revoked is not None
    assert Keyring(file.read()).find(key.encode()) is None
    with pytest.raises(KeyProblem, match=f"{account.id!r}; there are: none"):
        file.revoke(account.id)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": [{"id": 1}]}', '{"keys": 5}'])
def test_a_file_that_is_none_says_so(tmp_path, text):
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(KeyProblem, match="is not a file of keys"):
        KeyFile(tmp_path / "keys.json").read()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 1),
        ("digest", "ab"),
        ("digest", None),
        ("tenant", ["x"]),
        ("tenant", ""),
        ("tier", 9),
        ("tier", -1),
        ("tier", "paid"),
        ("tier", True),
        ("admin", "no"),
        ("created", 1.5),
        ("revoked", "x"),
        ("revoked", False),
    ],
)
def test_a_field_that_may_not_be_so_spoils_the_file_and_is_named(tmp_path, field, value):
    file = KeyFile(tmp_path / "keys.json")
    file.add("acme", Tier.PAID)
    rows = json.loads(file.path.read_text())
    rows["keys"][0][field] = value
    file.path.write_text(json.dumps(rows))
    with pytest.raises(KeyProblem, match=f"is not a file of keys.*{field}.*mend it"):
        file.read()


def test_a_key_revoked_while_the_server_starts_works_no_longer(serve, tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    key, account = file.add("acme", Tier.PAID)
    keyring = Keyring(file.read())
    file.revoke(account.id)
    place = serve(keyring=keyring, key_file=file)
    until(lambda: place.complete(key=key).status == 401)


def test_a_file_that_was_spoiled_leaves_the_old_keys(serve, tmp_path, caplog):
    file = KeyFile(tmp_path / "keys.json")
    key, _ = file.add("acme", Tier.PAID)
    place = serve(keyring=Keyring(file.read()), key_file=file)
    file.path.write_text(file.path.read_text().replace('"tier": 0', '"tier": 9'))
    until(lambda: "the old keys stay" in caplog.text)
    assert place.complete(key=key).status == 200
    caplog.clear()


@pytest.mark.parametrize("tenant", ["", "x" * 65, "a\nb"])
def test_a_tenant_without_a_name_gets_no_key(tenant):
    with pytest.raises(KeyProblem, match="1 to 64 printable"):
        make(tenant)


def run(*words):
    """The command in this process."""
    return CliRunner().invoke(main, ["keys", *map(str, words)])


def test_the_command_adds_lists_and_revokes(tmp_path):
    file = tmp_path / "keys.json"
    added = json.loads(run("add", "--tier", "paid", "--keys", file, "--json").stdout)
    assert Keyring(KeyFile(file).read()).find(added["key"].encode()).tier == Tier.PAID
    listed = json.loads(run("list", "--keys", file, "--json").stdout)
    assert [row["id"] for row in listed["keys"]] == [added["id"]]
    assert added["key"] not in run("list", "--keys", file).stdout
    assert run("revoke", added["id"], "--keys", file).exit_code == 0
    again = run("revoke", added["id"], "--keys", file)
    assert again.exit_code == 2
    assert "no working key" in again.stderr


def test_an_account_says_nothing_of_its_key():
    key, account = make("acme")
    assert key.rpartition("-")[2] not in repr(account)
    assert isinstance(account, Account)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::"])
def test_listening_elsewhere_demands_keys_of_ones_own(host, tmp_path):
    told = CliRunner().invoke(main, ["serve", "--host", host, "--keys", str(tmp_path / "none")])
    assert told.exit_code == 2
    assert "labkit keys add" in told.stderr


def test_more_models_than_gpus_are_refused():
    words = ["serve", "--gpus", "1", "--model", "a", "--model", "b", "--workers", "fake"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 2
    assert "2 models on 1 GPUs" in told.stderr
