"""One unit inside, converted once at the border."""

from labkit.core.units import MS, NEVER, US, S, from_ms, from_seconds, show_ms, to_ms, to_seconds


def test_a_second_is_a_thousand_milliseconds_is_a_million_microseconds():
    assert (US, MS, S) == (1, 1_000, 1_000_000)


def test_what_comes_in_is_rounded_to_a_whole_microsecond():
    assert (from_ms(50), from_ms(0.0015), from_ms(1.2345678)) == (50_000, 2, 1_235)
    assert (from_seconds(0.1), from_seconds(2.0000004)) == (100_000, 2_000_000)
    assert type(from_ms(0.5)) is type(from_seconds(0.5)) is int


def test_what_goes_out_is_in_peoples_units():
    assert (to_ms(50_500), to_seconds(1_500_000)) == (50.5, 1.5)
    assert (show_ms(50_000), show_ms(4_950)) == ("50 ms", "4.95 ms")


def test_never_is_later_than_a_thousand_years():
    assert NEVER > 1_000 * 365 * 24 * 3600 * S
