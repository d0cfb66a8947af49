"""A process that has torchrec imported, for the tests of several modules that run pipelined recommenders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.corpus.runs import Forks


@pytest.fixture(scope="session")
def torchrec_forks() -> Iterator[Forks]:
    """Importing it takes longer than the whole run of such a program."""
    forks = Forks(1, "torchrec.distributed.train_pipeline")
    yield forks
    forks.close()
