"""Which request is in which batch, and what becomes of a batch that fails."""

import pytest

from labkit.core.mapping import MAX_LOSSES, MappingTable, after_loss, after_raise
from labkit.core.messages import Reason, Request
from labkit.core.units import NEVER


def requests(count: int) -> tuple[Request, ...]:
    return tuple(Request(i) for i in range(count))


def sizes(pieces) -> list[int]:
    return [len(piece) for piece in pieces]


def bound(table: MappingTable, count: int, gpu: int = 0):
    return table.bind(requests(count), gpu, Reason.FULL, 0)


def test_a_lost_batch_is_retried_whole_then_in_tens_then_alone_then_not():
    rows = requests(25)
    assert sizes(after_loss(rows, 1)) == [25]
    assert sizes(after_loss(rows, 2)) == [10, 10, 5]
    assert sizes(after_loss(rows, 3)) == [1] * 25
    assert after_loss(rows, 4) == []
    assert MAX_LOSSES == 3


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_nobody_is_left_out_and_the_order_stays(losses: int):
    rows = requests(100)
    assert [row for piece in after_loss(rows, losses) for row in piece] == list(rows)


def killing(rows, poison: set[int], losses: int = 0) -> tuple[int, int, int]:
    """Calls, deaths and most deaths of one request, when these rows kill."""
    if not poison & {row.id for row in rows}:
        return 1, 0, losses
    calls, deaths, most = 1, 1, losses + 1
    for piece in after_loss(rows, losses + 1):
        more, died, deepest = killing(piece, poison, losses + 1)
        calls, deaths, most = calls + more, deaths + died, max(most, deepest)
    return calls, deaths, most


@pytest.mark.parametrize("poison", range(100))
def test_one_killer_in_a_hundred_costs_four_deaths_and_twenty_two_calls(poison: int):
    assert killing(requests(100), {poison}) == (22, 4, 4)


def test_two_killers_cost_one_search_each_and_share_the_first_two_deaths():
    assert killing(requests(100), {3, 77}) == (32, 6, 4)
    assert killing(requests(100), {3, 4}) == (22, 5, 4)


def test_a_batch_that_raised_is_halved_the_first_half_being_the_larger():
    assert [[r.id for r in half] for half in after_raise(requests(5))] == [[0, 1, 2], [3, 4]]
    assert sizes(after_raise(requests(2))) == [1, 1]


def test_one_whose_company_left_is_tried_alone():
    assert sizes(after_raise(requests(1))) == [1]
    assert after_raise(()) == []


def raising(rows, bad: set[int]) -> int:
    """How many calls it takes until every row is answered or has raised alone."""
    if len(rows) == 1 or not bad & {row.id for row in rows}:
        return 1
    return 1 + sum(raising(half, bad) for half in after_raise(rows))


def test_one_bad_input_in_a_hundred_is_found_in_fifteen_calls_at_most():
    calls = [raising(requests(100), {bad}) for bad in range(100)]
    assert (min(calls), max(calls)) == (13, 15)


def test_two_bad_inputs_cost_less_than_two_searches():
    calls = [raising(requests(100), {a, b}) for a in range(100) for b in range(a)]
    assert max(calls) == 27


def test_batches_are_numbered_from_one_and_no_number_is_used_twice():
    table = MappingTable()
    assert bound(table, 1).id == 1
    assert table.close(1).id == 1
    assert bound(table, 1).id == 2


def test_a_batch_remembers_where_it_is_bound_and_why():
    batch = MappingTable().bind(requests(2), 7, Reason.RETURNED, 2)
    assert (batch.gpu, batch.reason, batch.losses) == (7, Reason.RETURNED, 2)
    assert (batch.departed_at, batch.alive()) == (NEVER, requests(2))


def test_the_table_knows_which_batch_a_request_is_in():
    table = MappingTable()
    batch = bound(table, 2)
    assert table.find(1) is batch
    assert table.find(9) is None
    table.close(batch.id)
    assert table.find(1) is None


def test_whoever_left_keeps_a_seat_and_is_not_found_any_more():
    table = MappingTable()
    batch = bound(table, 3)
    assert table.drop(1) is batch
    assert [row.id for row in batch.alive()] == [0, 2]
    assert len(batch.rows) == 3
    assert table.drop(1) is None
    assert table.drop(9) is None


def test_a_batch_comes_back_once():
    table = MappingTable()
    batch = bound(table, 2)
    batch.departed_at = 5
    assert table.returns(batch.id) is batch
    assert table.late == 0
    assert table.returns(batch.id) is None
    assert table.returns(99) is None
    assert table.late == 2


def test_a_batch_that_never_left_cannot_come_back():
    table = MappingTable()
    batch = bound(table, 2)
    assert table.returns(batch.id) is None
    assert table.late == 1
    assert table.find(0) is batch


def test_a_request_that_rides_again_belongs_to_its_new_batch():
    table = MappingTable()
    first = bound(table, 2)
    table.close(first.id)
    second = bound(table, 2)
    assert table.find(0) is second
