"""Idempotency keys: one recorded outcome a key, and no key stuck for ever."""

import pytest

from labkit.core.idempotency import KEEP_FOR, Entry, Found, Key, KeyLedger, Standing
from labkit.core.messages import Outcome
from labkit.core.units import S

KEY = Key("acme", "POST /v1/completions", "k1")
SAME, OTHER = b"same", b"other"


def standing(found: Found | None) -> Standing | None:
    return None if found is None else found.standing


def test_fifty_at_once_with_one_key_are_one_execution() -> None:
    ledger = KeyLedger()
    found = [standing(ledger.begin(KEY, SAME, holder, now=0)) for holder in range(50)]
    assert found == [Standing.NEW] + [Standing.IN_FLIGHT] * 49
    assert ledger.in_flight() == 1


def test_a_finished_key_replays_the_very_bytes() -> None:
    ledger = KeyLedger()
    ledger.begin(KEY, SAME, 7, now=0)
    ledger.finish(KEY, 7, Outcome.ANSWERED, 200, b"body", now=5)
    assert ledger.begin(KEY, SAME, 8, now=6) == Found(
        Standing.DONE, Entry(SAME, 7, 5, 200, b"body")
    )


def test_another_request_under_the_key_is_told_so_before_it_is_told_to_wait() -> None:
    ledger = KeyLedger()
    ledger.begin(KEY, SAME, 1, now=0)
    assert standing(ledger.begin(KEY, OTHER, 2, now=0)) is Standing.OTHER_REQUEST
    ledger.finish(KEY, 1, Outcome.ANSWERED, 200, b"", now=1)
    assert standing(ledger.begin(KEY, OTHER, 2, now=2)) is Standing.OTHER_REQUEST


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.EXPIRED, Outcome.CANCELLED])
def test_an_outcome_without_work_frees_the_key(outcome: Outcome) -> None:
    ledger = KeyLedger()
    ledger.begin(KEY, SAME, 1, now=0)
    assert ledger.finish(KEY, 1, outcome, 429, b"busy", now=1) is None
    assert standing(ledger.begin(KEY, SAME, 2, now=2)) is Standing.NEW


def test_a_poison_request_is_remembered_so_that_its_retry_kills_no_more() -> None:
    ledger = KeyLedger()
    ledger.begin(KEY, SAME, 1, now=0)
    ledger.finish(KEY, 1, Outcome.FAILED, 422, b"request_failed", now=1)
    found = ledger.begin(KEY, SAME, 2, now=2)
    assert found is not None
    assert (found.standing, found.entry.status) == (Standing.DONE, 422)


def test_a_late_word_from_an_earlier_holder_changes_nothing() -> None:
    ledger = KeyLedger()
    ledger.begin(KEY, SAME, 1, now=0)
    ledger.finish(KEY, 1, Outcome.CANCELLED, 499, b"", now=1)
    ledger.begin(KEY, SAME, 2, now=2)
    assert ledger.finish(KEY, 1, Outcome.ANSWERED, 200, b"late", now=3) is None
    assert standing(ledger.begin(KEY, SAME, 3, now=4)) is Standing.IN_FLIGHT


def test_tenant_and_scope_are_part_of_the_key() -> None:
    ledger = KeyLedger()
    ledger.begin(KEY, SAME, 1, now=0)
    for other in (KEY._replace(tenant="bob"), KEY._replace(scope="POST /v1/chat/completions")):
        assert standing(ledger.begin(other, OTHER, 2, now=0)) is Standing.NEW


def test_work_is_cancelled_only_when_the_last_waiter_leaves() -> None:
    ledger = KeyLedger()
    for holder in range(3):
        ledger.begin(KEY, SAME, holder, now=0)
    assert [ledger.leave(KEY) for _ in range(4)] == [False, False, True, False]


def test_a_done_key_is_free_after_a_day() -> None:
    ledger = KeyLedger()
    ledger.begin(KEY, SAME, 1, now=0)
    ledger.finish(KEY, 1, Outcome.ANSWERED, 200, b"", now=10)
    assert standing(ledger.begin(KEY, OTHER, 2, now=KEEP_FOR + 9)) is Standing.OTHER_REQUEST
    assert standing(ledger.begin(KEY, OTHER, 2, now=KEEP_FOR + 10)) is Standing.NEW


def test_a_full_store_drops_the_oldest_outcome_and_never_a_key_in_flight() -> None:
    ledger = KeyLedger(most=2)
    keys = [KEY._replace(text=text) for text in "abcd"]
    ledger.begin(keys[0], SAME, 0, now=0)
    ledger.finish(keys[0], 0, Outcome.ANSWERED, 200, b"", now=0)
    assert standing(ledger.begin(keys[1], SAME, 1, now=1)) is Standing.NEW
    assert standing(ledger.begin(keys[2], SAME, 2, now=2)) is Standing.NEW
    assert len(ledger) == 2
    assert ledger.begin(keys[3], SAME, 3, now=3) is None
    assert standing(ledger.begin(keys[1], SAME, 4, now=4)) is Standing.IN_FLIGHT


def test_after_a_crash_what_was_done_replays_and_what_was_in_flight_is_free() -> None:
    ledger = KeyLedger()
    done, open_key = KEY, KEY._replace(text="k2")
    ledger.restore([(open_key, Entry(SAME, 2, 5)), (done, Entry(SAME, 1, 3, 200, b"body"))], now=S)
    found = ledger.begin(done, SAME, 9, now=S)
    assert found is not None
    assert (found.standing, found.entry.body) == (Standing.DONE, b"body")
    assert standing(ledger.begin(open_key, SAME, 9, now=S)) is Standing.NEW


def test_a_store_without_room_or_time_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_for 0 us, most 5: both must be more than 0"):
        KeyLedger(keep_for=0, most=5)


def test_keys_are_kept_for_a_day() -> None:
    assert KEEP_FOR == 86_400 * S
    assert KeyLedger().most == 1_000_000


def test_the_shortest_life_is_one_microsecond() -> None:
    ledger = KeyLedger(keep_for=1)
    ledger.begin(KEY, SAME, 1, now=0)
    ledger.finish(KEY, 1, Outcome.ANSWERED, 200, b"", now=5)
    assert standing(ledger.begin(KEY, SAME, 2, now=5)) is Standing.DONE
    assert standing(ledger.begin(KEY, SAME, 3, now=6)) is Standing.NEW


def test_nobody_leaves_a_key_that_nobody_holds() -> None:
    ledger = KeyLedger()
    assert ledger.leave(KEY) is False
    ledger.begin(KEY, SAME, 1, now=0)
    assert [ledger.leave(KEY), ledger.leave(KEY)] == [True, False]
    assert standing(ledger.begin(KEY, SAME, 2, now=0)) is Standing.IN_FLIGHT
    assert ledger.leave(KEY) is True


def done(count: int) -> list[tuple[Key, Entry]]:
    """So many finished keys, one a microsecond, the youngest first."""
    keys = [KEY._replace(text=f"k{number}") for number in range(count)]
    return [(key, Entry(SAME, n, n, 200, b"")) for n, key in enumerate(keys)][::-1]


def test_a_full_store_drops_the_oldest_of_several_outcomes() -> None:
    ledger = KeyLedger(most=3)
    ledger.restore(done(3), now=3)
    assert standing(ledger.begin(KEY._replace(text="new"), SAME, 9, now=4)) is Standing.NEW
    found = [standing(ledger.begin(KEY._replace(text=f"k{n}"), OTHER, 9, now=4)) for n in (1, 2)]
    assert found == [Standing.OTHER_REQUEST] * 2


def test_a_journal_larger_than_the_store_gives_it_the_youngest() -> None:
    ledger = KeyLedger(most=2)
    ledger.restore(done(4), now=4)
    assert len(ledger) == 2
    kept = [standing(ledger.begin(KEY._replace(text=f"k{n}"), SAME, 9, now=4)) for n in (2, 3)]
    assert kept == [Standing.DONE] * 2


def test_what_grew_old_while_the_service_was_down_is_free() -> None:
    ledger = KeyLedger(keep_for=10)
    ledger.restore(done(3), now=11)
    assert len(ledger) == 1


def test_what_was_written_before_a_clock_was_set_back_is_kept_no_longer_than_the_rest() -> None:
    ledger = KeyLedger(keep_for=10)
    later = KEY._replace(text="later")
    ledger.restore([(later, Entry(SAME, 1, 1_000, 200)), (KEY, Entry(SAME, 2, 3, 200))], now=5)
    assert standing(ledger.begin(later, SAME, 9, now=14)) is Standing.DONE
    assert standing(ledger.begin(later, SAME, 9, now=15)) is Standing.NEW
