"""The storm in its short form; the long one is `make storm` and `make proof`."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess
from tests.support.storm import Storm, has_overlap

SEED = int(os.environ.get("FORGEFLOW_TEST_SEED", "1"))
RUNS = int(os.environ.get("FORGEFLOW_TEST_RUNS", "400"))
FAULTS = int(os.environ.get("FORGEFLOW_TEST_FAULTS", "25"))


def test_storm_keeps_every_promise(
    start_node: Callable[..., NodeProcess], connection: Connection, tmp_path: Path
) -> None:
    Storm(connection, start_node, tmp_path, SEED, RUNS, FAULTS).run()


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(2, 12))
def test_long_storms_keep_every_promise(
    start_node: Callable[..., NodeProcess], connection: Connection, tmp_path: Path, seed: int
) -> None:
    Storm(connection, start_node, tmp_path, seed, 3000, 200).run()


def test_checker_sees_a_try_that_went_on_beside_the_next() -> None:
    assert has_overlap([(1.0, 1, "start"), (2.0, 2, "start"), (3.0, 1, "end")])
    assert not has_overlap([(1.0, 1, "start"), (2.0, 2, "start"), (3.0, 2, "end")])
