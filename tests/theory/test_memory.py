"""What models weigh, what tokens keep, how weights travel, and the ceilings of the hardware."""

import pytest

from labkit.theory import memory as m
from labkit.theory import roofline as r
from labkit.theory.checks import OutOfDomain


@pytest.mark.parametrize(
    ("shape", "parameters", "gigabytes", "kv"),
    [
        (m.LLAMA_2_7B, 6_738_415_616, 13.477, 524_288),
        (m.LLAMA_2_13B, 13_015_864_320, 26.032, 819_200),
        (m.LLAMA_3_8B, 8_030_261_248, 16.061, 131_072),
        (m.LLAMA_3_70B, 70_553_706_496, 141.107, 327_680),
        (m.LLAMA_2_70B, 68_976_648_192, 137.953, 327_680),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_weights_and_keys_of_known_models(shape, parameters, gigabytes, kv):
    assert shape.parameters == parameters
    assert round(shape.weight_bytes() / 1e9, 3) == gigabytes
    assert shape.kv_bytes_per_token() == kv


def test_paging_triples_the_sequences_that_fit():
    slots = m.kv_slots(12 * 2**30, m.kv_bytes_per_token(*m.OPT_13B_KV))
    assert slots == 15_728
    assert m.reserved_sequences(slots, 2048) == 7
    assert m.paged_sequences(slots, 161.31, 337.99, 0.963) == pytest.approx(30.3, abs=0.05)


def test_a_terabyte_of_weights_takes_minutes():
    assert m.transfer_seconds(1000, 7) == pytest.approx(143, abs=0.5)
    assert m.transfer_seconds(1000, m.gbit(100)) == pytest.approx(80)


def test_a_chain_beats_a_tree_beats_the_origin():
    seconds = [send(140, 8, 12.5) for send in (m.origin_seconds, m.tree_seconds, m.chain_seconds)]
    assert seconds == pytest.approx([89.6, 44.8, 11.3], abs=0.05)


def test_one_replica_gains_nothing_from_friends():
    assert m.origin_seconds(140, 1, 10) == m.tree_seconds(140, 1, 10) == m.chain_seconds(140, 1, 10)


def test_a_chain_of_whole_files_is_the_origin_again():
    assert m.chain_seconds(140, 8, 12.5, chunk_gb=140) == pytest.approx(89.6)


@pytest.mark.parametrize(
    ("gpu", "ridge", "floor"), [(r.A100_80, 153, 6.61), (r.H100, 295, 4.02), (r.H200, 206, 2.81)]
)
def test_a_decode_step_is_bound_by_memory_below_the_ridge(gpu, ridge, floor):
    weights = m.LLAMA_2_7B.weight_bytes() / 1e9
    assert round(gpu.ridge) == ridge
    assert round(r.decode_floor_ms(weights, gpu), 2) == floor
    assert r.decode_step_ms(weights, ridge - 1, gpu) == r.decode_floor_ms(weights, gpu)
    assert r.decode_step_ms(weights, ridge + 1, gpu) > r.decode_floor_ms(weights, gpu)


def test_intensity_of_decode_is_the_batch():
    assert r.decode_intensity(64) == 64
    assert r.decode_intensity(64, width=1) == 128
    assert r.H100.attainable(r.decode_intensity(1)) == pytest.approx(3.35)
    assert r.H100.attainable(10_000) == 989


def test_keys_and_values_are_read_too():
    assert r.decode_step_ms(10.0, 1, r.H200, kv_gb=2.0) == pytest.approx(12 / 4.8)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: m.kv_bytes_per_token(0, 8, 128), "layers 0"),
        (lambda: m.ModelShape("x", 1, 64, 128, 0, 1, 10), "heads 0"),
        (lambda: m.transfer_seconds(-1, 7), "size_gb -1"),
        (lambda: m.transfer_seconds(1, 0), "gb_per_second 0"),
        (lambda: m.tree_seconds(1, 0, 1), "replicas 0"),
        (lambda: m.paged_sequences(10, 0, 0), "mean length 0"),
        (lambda: r.Accelerator("x", 0, 1), "terabytes_per_second 0"),
        (lambda: r.decode_intensity(0), "batch 0"),
    ],
)
def test_what_has_no_answer_names_the_value(call, says):
    with pytest.raises(OutOfDomain, match=says):
        call()
