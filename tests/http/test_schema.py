"""The OpenAPI document and the server say the same, by schemathesis; `make fuzz` goes on longer."""

import pytest

from tools.fuzzing import schema
from tools.fuzzing.server import Served

pytestmark = pytest.mark.slow


def test_the_server_keeps_to_its_document_and_refuses_what_it_rules_out():
    with Served() as served:
        report = schema.run(served.url, served.keys["admin"], 1, 10, "^/lab/gpus/")
        assert not report.failed, report.text
        assert report.cases > 200
        assert served.finding() is None
