"""One attempt of a run that has a secret: whatever its executor says, the value is in none of it."""

from pathlib import Path

import pytest

from forgeflow.domain.run import Ending, Failure
from forgeflow.executors.base import Orders
from forgeflow.executors.output import OutputKeeper
from forgeflow.store.runs import ClaimedRun
from forgeflow.worker.attempt import execute_run
from forgeflow.worker.tally import Tally
from tests.support.scenario import claimed_run

VALUE = "correct horse"


class Deaf:
    """No orders, for ever."""

    is_closed = False

    def fileno(self) -> int:
        raise AssertionError("nobody asks")

    def stop_reason(self, run: ClaimedRun) -> str | None:
        return None

    def fence_at(self, run: ClaimedRun) -> float:
        return float("inf")


def failing(run: ClaimedRun, orders: Orders, keeper: OutputKeeper) -> Ending:
    value = run.payload["stdin"]
    keeper.feed(f"with {value}".encode())
    keeper.note_progress(1, f"near {value}")
    return Ending(run.id, run.attempt, Failure("failed", f"failed with {value}", charged=True))


def breaking(run: ClaimedRun, orders: Orders, keeper: OutputKeeper) -> Ending:
    raise ValueError(f"a bug with {run.payload['stdin']}")


@pytest.fixture
def run(tmp_path: Path) -> ClaimedRun:
    (tmp_path / "token").write_text(VALUE)
    (tmp_path / "token").chmod(0o600)
    return claimed_run(payload={"command": "true", "stdin": "secret:token"})


def test_error_output_and_progress_of_an_attempt_have_no_secret(run: ClaimedRun, tmp_path: Path) -> None:
    keeper = OutputKeeper(1000)
    ending = execute_run(run, {"shell": failing}, Deaf(), keeper, Tally(), secrets_folder=str(tmp_path))
    assert ending.failure
    assert (ending.failure.error, ending.output.head) == ("failed with ***", "with ***")
    assert keeper.progress == (1, "near ***")


def test_attempt_whose_secret_is_missing_is_not_started(run: ClaimedRun) -> None:
    ending = execute_run(run, {"shell": breaking}, Deaf(), OutputKeeper(1000), Tally(), secrets_folder="")
    assert ending.failure
    assert (ending.failure.error_type, ending.failure.charged) == ("not_started", True)
    assert ending.failure.error.startswith("secret token is missing")
