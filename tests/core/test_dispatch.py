"""Which GPU takes the next batch."""

from collections import Counter, deque
from random import Random

import pytest

from labkit.core.dispatch import (
    LeastLoaded,
    Pool,
    RandomChoice,
    RoundRobin,
    Slot,
    TwoChoices,
    chooser_from,
)
from labkit.core.settings import ConfigError, Settings


class Script:
    """Chances written down beforehand."""

    def __init__(self, *chances: float) -> None:
        self.chances = list(chances)

    def random(self) -> float:
        return self.chances.pop(0)


def slot(gpu: int, running: int | None = None, backlog: int = 0, since: int = 0) -> Slot:
    made = Slot(gpu, since)
    made.running = running
    made.backlog = deque(range(backlog))
    return made


def idle(*gpus: int) -> list[Slot]:
    return [slot(gpu) for gpu in gpus]


def test_a_gpus_load_is_what_it_runs_and_what_it_holds():
    assert [slot(0).load, slot(0, 7).load, slot(0, 7, 2).load, slot(0, None, 2).load] == [
        0,
        1,
        3,
        2,
    ]


def test_an_idle_gpu_has_room_a_busy_one_up_to_its_backlog_a_draining_one_none():
    assert slot(0).has_room(0)
    assert not slot(0, 7).has_room(0)
    assert slot(0, 7).has_room(1)
    assert not slot(0, 7, 1).has_room(1)
    assert slot(0, 7, 1).has_room(2)
    draining = slot(0)
    draining.draining = True
    assert not draining.has_room(5)


def test_least_loaded_takes_the_one_with_the_fewest_batches():
    assert LeastLoaded().choose([slot(0, 1, 1), slot(1, 1), slot(2, 1, 2)]).gpu == 1


def test_of_equals_the_one_idle_longest_is_taken_whatever_its_number():
    assert LeastLoaded().choose([slot(0, since=30), slot(1, since=10), slot(2, since=20)]).gpu == 1
    assert LeastLoaded().choose([slot(0, since=10), slot(1, since=10)]).gpu == 0


def test_load_comes_before_idle_time():
    assert LeastLoaded().choose([slot(0, 1, since=0), slot(1, since=99)]).gpu == 1


def test_round_robin_takes_each_in_turn_and_starts_again():
    chooser = RoundRobin()
    assert [chooser.choose(idle(0, 1, 2)).gpu for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_keeps_its_place_while_gpus_come_and_go():
    chooser = RoundRobin()
    rooms = [(0, 1, 2), (0, 2), (0, 1, 2), (1, 2), (5,), (0, 5, 9), (0, 1)]
    assert [chooser.choose(idle(*room)).gpu for room in rooms] == [0, 2, 0, 1, 5, 9, 0]


def test_round_robin_does_not_care_how_busy_a_gpu_is():
    assert RoundRobin().choose([slot(0, 1, 9), slot(1)]).gpu == 0


@pytest.mark.parametrize(
    ("first", "second", "pair"),
    [
        (0.0, 0.0, {0, 1}),
        (0.0, 0.999, {0, 3}),
        (0.999, 0.0, {3, 0}),
        (0.999, 0.999, {3, 2}),
        (0.3, 0.3, {1, 0}),
        (0.3, 0.34, {1, 2}),
    ],
)
def test_two_choices_compares_two_different_gpus(first: float, second: float, pair: set[int]):
    for winner in pair:
        room = [slot(gpu, 1, backlog=0 if gpu == winner else 3) for gpu in range(4)]
        assert TwoChoices(Script(first, second)).choose(room).gpu == winner


def test_two_choices_knows_nothing_of_the_others():
    room = [slot(0, 1, 3), slot(1, 1, 2), slot(2)]
    assert TwoChoices(Script(0.0, 0.0)).choose(room).gpu == 1


def test_two_choices_breaks_a_tie_by_idle_time():
    room = [slot(0, since=5), slot(1, since=3)]
    assert TwoChoices(Script(0.0, 0.0)).choose(room).gpu == 1
    assert TwoChoices(Script(0.9, 0.0)).choose(room).gpu == 1


def test_two_choices_with_one_gpu_takes_it():
    assert TwoChoices(Random(1)).choose(idle(4)).gpu == 4


def test_two_choices_meets_every_pair_equally_often():
    seen = Counter()
    chooser = TwoChoices(Random(1))
    for _ in range(3_000):
        room = [slot(gpu, since=gpu) for gpu in range(3)]
        seen[chooser.choose(room).gpu] += 1
    # The lowest of a pair wins: 0 in two pairs of three, 1 in one, 2 in none.
    assert sorted(seen) == [0, 1]
    assert 1_900 < seen[0] < 2_100


def test_random_takes_any_by_one_draw():
    rng = Script(0.0, 0.26, 0.5, 0.999)
    assert [RandomChoice(rng).choose(idle(3, 5, 7, 9)).gpu for _ in range(4)] == [3, 5, 7, 9]
    assert rng.chances == []


@pytest.mark.parametrize("name", ["two_choices", "random"])
def test_chance_without_an_rng_is_refused(name: str):
    with pytest.raises(ConfigError) as refused:
        chooser_from(Settings(dispatch=name), None)
    assert str(refused.value) == (
        f"dispatch '{name}' draws at random: pass rng=random.Random(seed)"
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("least_loaded", LeastLoaded),
        ("round_robin", RoundRobin),
        ("two_choices", TwoChoices),
        ("random", RandomChoice),
    ],
)
def test_the_settings_name_the_chooser(name: str, kind: type):
    rng = Random(1)
    chooser = chooser_from(Settings(dispatch=name), rng)
    assert type(chooser) is kind
    assert getattr(chooser, "rng", rng) is rng


def test_a_pool_is_open_while_some_gpu_has_room():
    pool = Pool(RoundRobin(), 0)
    assert not pool.open
    pool.add(slot(1))
    pool.add(slot(0))
    assert pool.open
    assert list(pool.slots) == [0, 1]
    pool.slots[0].running = pool.slots[1].running = 7
    pool.look()
    assert not pool.open
    pool.slots[1].running = None
    pool.look()
    assert pool.open
    assert pool.pick().gpu == 1
    assert pool.remove(1).gpu == 1
    assert not pool.open


def test_a_pool_without_bound_always_has_room():
    pool = Pool(RoundRobin(), None)
    pool.add(slot(0, 1, backlog=1_000))
    assert pool.open


def test_only_an_idle_gpu_that_holds_a_batch_can_start_one():
    pool = Pool(RoundRobin(), 3)
    for made in (slot(0), slot(1, 7, 2), slot(2, None, 1)):
        pool.add(made)
    assert pool.startable().gpu == 2
    pool.remove(2)
    assert pool.startable() is None
