"""One step for every device equals the plain forward pass, and seats do not touch each other."""

import pytest

torch = pytest.importorskip("torch")

from labkit.gpu import model  # noqa: E402
from labkit.gpu.ballast import Ballast, half_type  # noqa: E402
from labkit.gpu.calibrate import PRESETS, Preset  # noqa: E402
from labkit.gpu.decoder import Decoder  # noqa: E402
from labkit.gpu.model import Seats, Shape  # noqa: E402
from labkit.gpu.tokens import FIRST, FULL_STEPS, LINE_BYTES, POSITIONS, WINDOW  # noqa: E402

SMALL = Shape(width=32, layers=2, heads=2, head=8)
PROMPTS = ["hello", "request 42", "", "the fog", "🚢🚢"]


def decoder(shape: Shape = SMALL, seats: int = 5) -> Decoder:
    weights = model.initial(shape, torch.Generator().manual_seed(3))
    return Decoder(loaded=(weights, shape), seats=seats)


def test_the_cached_step_equals_the_plain_forward_pass_at_every_position() -> None:
    run = decoder()
    run.board(PROMPTS)
    for position in range(FULL_STEPS):
        run.run(1)
        seen = run.seats.tokens[:, : position + 1]
        plain = model.forward(run.weights, run.shape, seen, run.seats.table)[:, -1]
        assert torch.allclose(run.seats.logits, plain, atol=1e-5)
        if position >= WINDOW:
            assert torch.equal(run.seats.tokens[:, position + 1], plain.argmax(-1))


def test_the_window_is_fed_and_never_overwritten() -> None:
    run = decoder()
    run.board(PROMPTS)
    before = run.seats.tokens[:, :FIRST].clone()
    run.run(FULL_STEPS)
    assert torch.equal(run.seats.tokens[:, :FIRST], before)


def test_steps_beyond_the_last_position_change_nothing() -> None:
    run = decoder()
    run.board(PROMPTS)
    run.run(POSITIONS)
    before = run.seats.tokens.clone()
    run.run(25)
    assert torch.equal(run.seats.tokens, before)
    assert run.seats.at.item() == POSITIONS - 1


def test_a_seat_forgets_the_batch_before() -> None:
    run = decoder()
    run.board(PROMPTS)
    run.run(FULL_STEPS)
    first = run.lines(5, LINE_BYTES)
    run.board(["something else"] * 5)
    run.run(FULL_STEPS)
    run.board(PROMPTS)
    run.run(FULL_STEPS)
    assert run.lines(5, LINE_BYTES) == first


def test_every_seat_gives_the_same_bits() -> None:
    run = decoder(Shape(), seats=100)
    run.board(["request 42"] * 100)
    run.run(FULL_STEPS)
    assert torch.equal(run.seats.logits, run.seats.logits[:1].expand(100, -1))


def test_a_row_has_the_same_bits_under_any_neighbours_in_any_seat() -> None:
    run = decoder(Shape(), seats=100)
    prompts = [f"passenger {number}" for number in range(100)]
    run.board(prompts)
    run.run(FULL_STEPS)
    crowd = run.seats.logits.clone()
    run.board(prompts[::-1])
    run.run(FULL_STEPS)
    assert torch.equal(run.seats.logits.flip(0), crowd)
    run.board(prompts[:1])
    run.run(FULL_STEPS)
    assert torch.equal(run.seats.logits[0], crowd[0])


def test_one_thread_for_the_step_and_as_many_as_before_after_it() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run = decoder()
        counts = []
        step = run.once
        run._launch._once = lambda: (step(), counts.append(torch.get_num_threads()))
        run.run(2)
        assert counts == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_buffers_stay_where_they_are() -> None:
    run = decoder()
    seats: Seats = run.seats
    buffers = [seats.tokens, seats.at, seats.logits, seats.hidden, *seats.keys, *seats.values]
    addresses = [buffer.data_ptr() for buffer in buffers]
    run.board(PROMPTS)
    run.run(FULL_STEPS)
    assert [b.data_ptr() for b in (seats.tokens, seats.at, seats.logits, seats.hidden)] == (
        addresses[:4]
    )
    assert [b.data_ptr() for b in (*seats.keys, *seats.values)] == addresses[4:]


def test_ballast_is_as_large_as_its_name_says() -> None:
    assert [(p.name, p.parameters) for p in PRESETS] == [
        ("9M", 9_437_184),
        ("48M", 47_579_136),
        ("680M", 679_477_248),
    ]
    assert PRESETS[2].bytes == 2 * PRESETS[2].parameters


def test_ballast_rides_along_and_changes_no_text() -> None:
    bare = decoder()
    bare.board(PROMPTS)
    bare.run(FULL_STEPS)
    weights = (bare.weights, bare.shape)
    heavy = Decoder(
        loaded=weights, ballast=Ballast(Preset("tiny", 64, 2), "cpu", torch.bfloat16), seats=5
    )
    heavy.board(PROMPTS)
    heavy.run(FULL_STEPS)
    assert torch.equal(heavy.seats.tokens, bare.seats.tokens)
    pushed = heavy.ballast.push(heavy.seats.hidden)
    assert pushed.shape == (5, 64)
    assert pushed.dtype == torch.bfloat16
    assert torch.isfinite(pushed).all()


def test_bf16_from_ampere_on_and_fp16_before() -> None:
    assert half_type((7, 5)) == torch.float16
    assert half_type((8, 0)) == torch.bfloat16
    assert half_type((9, 0)) == torch.bfloat16
