"""A model of its own size, drawn."""

from labkit.core.messages import Request
from labkit.core.settings import ModelRule, Settings
from labkit.core.units import MS
from labkit.sim.driver import simulate
from labkit.viz.segments import dock_segments

LARGE = ModelRule("ferry", max_batch=8, batch_time=40 * MS)


def test_a_boat_larger_than_the_gateways_own_has_its_seats_and_its_time():
    settings = Settings(max_batch=2, sizes=(LARGE,))
    run = simulate(settings, [Request(i) for i in range(8)], gpus=1, trace=True)
    (dock,) = dock_segments(run.trace)["docks"]
    (boat,) = dock["boats"]
    assert (boat["size"], boat["badge"], boat["planned"]) == (8, "FULL", 40 * MS)
    assert sorted(row["seat"] for row in dock["passengers"]) == [0, 1, 2, 3, 4, 5, 6, 7]
