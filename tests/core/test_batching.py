"""When a batch leaves."""

from dataclasses import dataclass

import pytest

from labkit.core.batching import FerryRule, LeaveAtOnce, WaitUntilFull, rule_from
from labkit.core.settings import Settings
from labkit.core.units import MS, NEVER


@dataclass
class Bank:
    depth: int
    oldest_at: int


EMPTY = Bank(0, NEVER)
FERRY = FerryRule(100, 50 * MS)


def test_the_ferry_leaves_when_the_oldest_has_waited_its_time():
    assert FERRY.due_at(Bank(1, 7 * MS)) == 57 * MS
    assert FERRY.due_at(Bank(99, 7 * MS)) == 57 * MS


@pytest.mark.parametrize("depth", [100, 101, 5_000])
def test_a_full_ferry_is_due_already(depth: int):
    assert FERRY.due_at(Bank(depth, 7 * MS)) == 7 * MS


def test_without_a_window_whoever_comes_leaves():
    assert FerryRule(100, 0).due_at(Bank(1, 7 * MS)) == 7 * MS


def test_one_who_leaves_at_once_is_due_since_the_first_came():
    assert LeaveAtOnce(100).due_at(Bank(1, 7 * MS)) == 7 * MS
    assert LeaveAtOnce(100).due_at(Bank(200, 7 * MS)) == 7 * MS


def test_one_who_waits_until_full_waits_for_ever_short_of_one():
    assert WaitUntilFull(100).due_at(Bank(99, 7 * MS)) == NEVER
    assert WaitUntilFull(100).due_at(Bank(100, 7 * MS)) == 7 * MS
    assert WaitUntilFull(100).due_at(Bank(101, 7 * MS)) == 7 * MS


@pytest.mark.parametrize("rule", [FERRY, LeaveAtOnce(100), WaitUntilFull(100)])
def test_with_nobody_there_nothing_is_ever_due(rule):
    assert rule.due_at(EMPTY) >= NEVER


def test_asking_twice_gets_the_same_answer():
    bank = Bank(1, 7 * MS)
    assert FERRY.due_at(bank) == FERRY.due_at(bank)


def test_the_settings_name_the_rule():
    ferry = rule_from(Settings(max_batch=6, max_wait=20 * MS))
    assert isinstance(ferry, FerryRule)
    assert (ferry.max_batch, ferry.max_wait) == (6, 20 * MS)
    at_once = rule_from(Settings(max_batch=6, rule="at_once"))
    assert isinstance(at_once, LeaveAtOnce)
    assert at_once.max_batch == 6
    full = rule_from(Settings(max_batch=6, rule="full"))
    assert isinstance(full, WaitUntilFull)
    assert full.max_batch == 6
