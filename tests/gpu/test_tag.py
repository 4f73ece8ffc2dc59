"""The tag ties an output to its input."""

import subprocess
import sys

from labkit.gpu.tag import carries, stamp, tag, text_of


def test_the_tag_is_the_crc_of_the_prompt_in_eight_hex_digits() -> None:
    assert tag("hello") == "3610a686"
    assert tag("") == "00000000"


def test_any_string_has_a_tag() -> None:
    for prompt in ("\0", "🚢", "\ud800", "x" * 100_000):
        assert len(tag(prompt)) == 8


def test_an_output_carries_the_tag_of_its_own_prompt_only() -> None:
    output = stamp("hello waits on the deck today.", "hello")
    assert output == "hello waits on the deck today. #3610a686"
    assert carries(output, "hello")
    assert not carries(output, "hello ")
    assert text_of(output) == "hello waits on the deck today."


def test_tagging_and_planning_a_fleet_import_no_torch() -> None:
    script = (
        "import sys; import labkit.gpu.tag, labkit.gpu.device, labkit.gpu.worker_setup, "
        "labkit.gpu.records, labkit.gpu.pace, labkit.gpu.telemetry, labkit.gpu.measure; "
        "labkit.gpu.device.plan_workers(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
