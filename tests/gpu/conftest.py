"""torch computes on one thread here, so that tests are as quick beside others as alone."""

import contextlib

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """One thread for the whole of these tests."""
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)
