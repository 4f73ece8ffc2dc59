"""When a refused client is told to return."""

from labkit.live.http.patience import DrainMeter, quota_headers, retry_headers, wait_for


def test_it_is_the_time_to_the_first_boat_and_the_queue_over_its_drain_rate():
    assert wait_for(0.0, 400, 1_000.0, 10.0, lambda: 0.0) == 0.4
    assert wait_for(0.5, 500, 1_000.0, 10.0, lambda: 0.0) == 1.0
    assert wait_for(0.0, 400, 1_000.0, 10.0, lambda: 1.0) == 0.8


def test_where_nothing_drains_it_is_a_guess_and_never_over_a_minute():
    assert wait_for(0.0, 400, 0.0, 2.0, lambda: 0.0) == 5.0
    assert wait_for(0.0, 1_000_000, 1.0, 1e9, lambda: 1.0) == 60


def test_nobody_is_told_to_wait_for_longer_than_anybody_stays_in_the_queue():
    assert wait_for(0.1, 400, 10.0, 2.0, lambda: 0.0) == 2.1


def test_the_header_is_a_whole_number_from_one_to_sixty_and_the_finer_one_is_finer():
    assert retry_headers(0.0) == b"retry-after: 1\r\nretry-after-ms: 1\r\n"
    assert retry_headers(1.2) == b"retry-after: 2\r\nretry-after-ms: 1200\r\n"
    assert retry_headers(900.0) == b"retry-after: 60\r\nretry-after-ms: 60000\r\n"


def test_a_full_queue_says_how_many_places_it_has_and_when_one_is_free():
    told = quota_headers(b"queue", 400, 2.4)
    assert told == b'ratelimit-policy: "queue";q=400\r\nratelimit: "queue";r=0;t=2\r\n'
    assert quota_headers(b"tier", 80, 0.1).endswith(b'"tier";r=0;t=1\r\n')


def test_the_meter_reads_only_while_there_is_more_than_enough_to_do():
    meter = DrainMeter()
    for second, (count, busy) in enumerate([(0, False), (5, False), (10, True), (1_010, True)]):
        meter.read(count, busy, float(second))
    assert meter.rate(3.0) == 1_000.0
    meter.read(1_015, False, 4.0)
    assert meter.rate(4.0) == 1_000.0
    assert meter.rate(8.1) is None
