"""`forgeflow ping`, with as few imports as it takes: a health check must be quick."""

from dataclasses import asdict

from forgeflow.cli.exits import FAILED
from forgeflow.cli.say import say, say_document
from forgeflow.config import load_config
from forgeflow.duration import in_seconds
from forgeflow.errors import InvalidInput
from forgeflow.service.ping import Answer, ping

_LONGEST_TIMEOUT_SECONDS = 600.0


def run_ping(config_file: str | None, *, node: str | None, timeout: str, as_json: bool) -> int:
    """Say whether that node lives.  Blocks for `timeout` at most.  Raises what `ping` raises, and InvalidInput."""
    seconds = _timeout_seconds(timeout)
    answer = ping(load_config(config_file), node, within_seconds=seconds)
    if as_json:
        say_document({"lives": answer.lives, "nodes": [asdict(lease) for lease in answer.leases]})
    else:
        say(_line(answer))
    return 0 if answer.lives else FAILED


def _timeout_seconds(timeout: str) -> float:
    try:
        seconds = in_seconds(timeout)
    except ValueError as error:
        raise InvalidInput(f"--timeout: {error}") from error
    if not 0 < seconds <= _LONGEST_TIMEOUT_SECONDS:
        raise InvalidInput("--timeout: expected a duration of more than 0 and at most 10m")
    return seconds


def _line(answer: Answer) -> str:
    if not answer.leases:
        return f"no node {answer.asked}"
    best = answer.leases[0]
    who = f"{best.worker_id} (host {best.hostname}, pid {best.pid})"
    if not answer.lives:
        return f"no node that {answer.asked} lives: the lease of {who} passed {-best.lease_seconds:.0f} s ago"
    return f"node {who} lives: its lease has {best.lease_seconds:.1f} s left"
