"""What a machine can run, decided from stated facts."""

from dataclasses import replace

from labkit.gpu.device import (
    CPU_LINE,
    CUDA_LINE,
    WEIGHTS_LINE,
    Worker,
    device,
    fixes,
    plan_workers,
)
from labkit.gpu.machine import GB, Card, Facts, cuda_of, look, parse_cards, visible

SMI = """\
NVIDIA H200, GPU-aa, 143771, 143000, 570.86.15, 9.0
Tesla T4, GPU-bb, 15360, 15000, 550.54.15, 7.5
Odd card, GPU-cc, [N/A], [N/A], 1, [N/A]
"""


def card(name: str = "NVIDIA H200", uuid: str = "GPU-0", free: int = 140 * GB) -> Card:
    return Card(name, uuid, 144 * GB, free, "570.86.15", (9, 0))


def facts(
    *cards: Card, cores: int = 2, ram: int = 64 * GB, torch: str | None = "2.13.0", cuda=None
) -> Facts:
    return Facts(cores, ram, torch, cuda or ("13.0" if cards else None), cards)


def test_eight_cards_are_eight_real_gpus() -> None:
    fleet = plan_workers(8, facts(*(card(uuid=f"GPU-{n}") for n in range(8))))
    assert fleet.banner == "8 real GPUs"
    assert fleet.workers == tuple(Worker("cuda", 1.0, f"GPU-{n}") for n in range(8))
    assert fleet.notes == ()


def test_one_card_is_shared_by_eight_processes() -> None:
    fleet = plan_workers(8, facts(card()))
    assert fleet.banner == "8 processes on one card, 1/8 each"
    assert len(fleet.workers) == 8
    assert {round(worker.share, 6) for worker in fleet.workers} == {0.085}


def test_cards_in_between_are_shared_evenly() -> None:
    two = facts(card(uuid="GPU-a"), card(uuid="GPU-b"))
    assert plan_workers(8, two).banner == "8 processes on 2 cards, 1/4 each"
    assert [worker.card for worker in plan_workers(4, two).workers] == [
        "GPU-a",
        "GPU-b",
        "GPU-a",
        "GPU-b",
    ]
    uneven = plan_workers(3, two)
    assert uneven.banner == "3 processes on 2 cards, about 1/1.5 each"
    assert [worker.share for worker in uneven.workers] == [0.34, 1.0, 0.34]
    assert plan_workers(1, two).banner == "1 real GPU"


def test_without_a_card_torch_runs_a_core_each_and_timers_are_the_rest() -> None:
    fleet = plan_workers(8, facts())
    assert fleet.banner == "2 torch + 6 timer workers on this CPU"
    assert [worker.kind for worker in fleet.workers] == ["cpu"] * 2 + ["timer"] * 6
    assert plan_workers(2, facts()).banner == "2 torch workers on this CPU"
    assert plan_workers(1, facts()).banner == "1 torch worker on this CPU"


def test_without_torch_all_are_timers() -> None:
    fleet = plan_workers(8, facts(torch=None))
    assert fleet.banner == "8 timer workers on this CPU"


def test_fewer_workers_than_asked_for_are_said_with_the_numbers() -> None:
    small = plan_workers(8, facts(card(free=3 * GB)))
    assert small.banner == "4 processes on one card, 1/4 each"
    assert small.notes == (
        "4 torch workers instead of 8: each may need 1.2 GB of main memory (and 0.7 GB on a "
        "card); free now 64.0 GB, 3.0 GB on NVIDIA H200",
    )
    assert len(plan_workers(8, facts(card(), ram=5 * GB)).workers) == 4
    tight = plan_workers(8, facts(cores=8, ram=3 * GB))
    assert tight.banner == "2 torch + 6 timer workers on this CPU"
    assert tight.notes[0].startswith("2 torch workers instead of 8")


def test_a_full_card_is_left_alone() -> None:
    fleet = plan_workers(2, facts(card(free=GB // 2)))
    assert fleet.banner == "2 torch workers on this CPU"
    assert fleet.notes[0].startswith("no memory for a worker on a card")


def test_cards_are_read_from_the_drivers_table() -> None:
    first, second = parse_cards(SMI)
    assert (first.name, first.uuid, first.capability) == ("NVIDIA H200", "GPU-aa", (9, 0))
    assert second.free == 15000 * (1 << 20)
    assert parse_cards("No devices were found\n") == ()


def test_hidden_cards_are_not_counted() -> None:
    found = parse_cards(SMI)
    assert visible(found, None) == found
    assert visible(found, "") == ()
    assert visible(found, "1") == (found[1],)
    assert visible(found, "1,0") == (found[1], found[0])
    assert visible(found, "GPU-b") == (found[1],)
    assert visible(found, "0,-1,1") == (found[0],)
    assert visible(found, "GPU-") == ()


def test_the_build_of_torch_is_read_from_its_file() -> None:
    assert cuda_of("cuda: Optional[str] = None\n") is None
    assert cuda_of("debug = False\ncuda: Optional[str] = '13.0'\nhip = None\n") == "13.0"
    assert cuda_of("cuda = '12.1'\n") == "12.1"


def test_a_cpu_build_beside_a_card_is_named_with_the_line_that_mends_it() -> None:
    wrong = Facts(2, GB, "2.13.0+cpu", None, (card(),))
    assert fixes(wrong) == [("torch 2.13.0+cpu is a CPU build beside a NVIDIA H200", CUDA_LINE)]
    assert device(wrong) == "cpu"
    assert fixes(facts(torch=None)) == [
        ("torch is not installed: only timer workers run", CPU_LINE)
    ]
    assert fixes(facts()) == []


def test_a_torch_that_cannot_read_the_weights_is_no_torch_to_a_worker() -> None:
    bare = replace(facts(card()), safetensors=False)
    assert device(bare) == "cpu"
    assert plan_workers(8, bare).banner == "8 timer workers on this CPU"
    assert fixes(bare) == [
        ("safetensors is not installed: torch workers cannot read weights", WEIGHTS_LINE)
    ]


def test_this_machine_can_be_looked_at() -> None:
    found = look()
    assert found.cores >= 1
    assert found.free_ram > 0
