"""A fleet on one machine, to look at and to break: `make cluster`.

PostgreSQL, the web process, a node that only schedules and three that only work, each a process of its own as on a
machine of its own. A node that is killed stays dead, as a machine would: the others go on.
"""

import json
import os
import urllib.error
import urllib.request

import click

from forgeflow.cli.exits import exit_with
from forgeflow.cli.guard import Service
from forgeflow.cli.up import address_of, answers, say, serve_machine
from forgeflow.config import Config

WORKERS = ("worker-1", "worker-2", "worker-3")
CONCURRENCY = 2


def node(name: str, roles: str) -> Service:
    environment = {
        "FORGEFLOW_WORKER_ID": name,
        "FORGEFLOW_ROLES": roles,
        "FORGEFLOW_CONCURRENCY": str(CONCURRENCY),
    }
    return Service("master", name, environment, is_mortal=True)


def living_nodes(address: str) -> dict[str, int]:
    """The pids of the nodes that beat, by name, as the API shows them; none while it cannot be asked."""
    try:
        with urllib.request.urlopen(f"{address}/api/nodes", timeout=2) as response:
            return {item["worker_id"]: item["pid"] for item in json.load(response)["items"] if item["is_alive"]}
    except (OSError, urllib.error.URLError):
        return {}


def greet(config: Config) -> bool:
    """Once every node beats, say where they are and what to do with them; whether they do."""
    if not answers(config):
        return False
    address = address_of(config)
    pids = living_nodes(address)
    if not {"scheduler", *WORKERS} <= set(pids):
        return False
    lines = "\n".join(f"  {name:<12}pid {pids[name]}" for name in ("scheduler", *WORKERS))
    say(
        f"""
A fleet is up: {address}

{lines}

Submit a slow job, see which node has it (worker_id), and kill that node by its pid above:
  curl -X POST {address}/api/jobs -d '{{"name": "slow", "executor": "shell", "payload": {{"command": "sleep 60"}}}}'
  curl {address}/api/runs
  kill -9 PID

When its lease has passed, {config.worker.lease_duration:g} s, or sooner when its worker could still report it,
another node takes the run over. A node that is killed stays dead; start the fleet again to have it back.
Ctrl-C stops everything; running jobs may finish.
"""
    )
    return True


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where the API listens; default 127.0.0.1:8080.")
@click.option("--data-dir", metavar="DIR", envvar="FORGEFLOW_DATA_DIR", help="State folder, as of `forgeflow up`.")
def main(listen: str | None, data_dir: str | None) -> None:
    """Run the fleet until Ctrl-C or TERM."""
    # Five services on one terminal: what is as it should be is not told.
    os.environ.setdefault("FORGEFLOW_LOG_LEVEL", "warning")
    masters = [node("scheduler", "scheduler"), *(node(name, "worker") for name in WORKERS)]
    exit_with(lambda: serve_machine(None, listen=listen, data_dir=data_dir, masters=masters, greet=greet))


if __name__ == "__main__":
    main()
