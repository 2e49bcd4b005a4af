"""The storm: nodes under random faults, and every promise checked afterwards.

Commands keep a ledger themselves, a line at the start and one at the end of each try, so that what the database says
can be held against what was done. The faults are drawn from a seed; what they hit depends on the moment. Nodes differ
in how much their workers may hold, one run to a hundred; bursts of functions, some of which kill their worker, fill
their hands.
"""

import itertools
import os
import random
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from forgeflow.process.tree import Strays, children
from forgeflow.service.jobs import submit_job
from forgeflow.service.lifecycle import trigger_job
from forgeflow.service.requests import read_job_request
from forgeflow.store import runs
from forgeflow.store.connection import Connection, transaction
from tests.support.processes import NodeProcess, children_of, descendants_of
from tests.support.waiting import wait_for
from tests.support.work import submit

_CLAIM_BATCHES = (1, 20, 100)
_BURST = 40
_FUNCTIONS = """
import os, random, signal
import forgeflow

@forgeflow.job(name="instant")
def instant():
    if random.random() < 0.002:
        os.kill(os.getpid(), signal.SIGKILL)
"""

# Each must count nothing, after the storm. The names are what would be wrong.
VIOLATIONS = {
    "a run that is not finished": "SELECT count(*) FROM queue",
    "an attempt that began before the one before it had ended": """
        SELECT count(*) FROM attempts AS a JOIN attempts AS b ON b.run_id = a.run_id AND b.attempt > a.attempt
         WHERE b.started_at < a.ended_at""",
    "a last attempt that began before an earlier one had ended": """
        SELECT count(*) FROM finished_runs AS f JOIN attempts AS a ON a.run_id = f.id
         WHERE f.started_at < a.ended_at OR f.attempt <= a.attempt""",
    "more failures than tries": "SELECT count(*) FROM finished_runs WHERE failures > max_attempts",
    "a dead run with tries left": """
        SELECT count(*) FROM finished_runs WHERE status = 'dead' AND failures < max_attempts""",
    "failures that are not the charged attempts": """
        SELECT count(*) FROM finished_runs AS f
         WHERE f.failures <> (SELECT count(*) FROM attempts AS a WHERE a.run_id = f.id AND a.charged)
                             + (f.status = 'dead')::int""",
    "a tick that became two runs": """
        SELECT count(*) FROM (SELECT job_id, tick_at FROM runs WHERE tick_at IS NOT NULL
                               GROUP BY 1, 2 HAVING count(*) > 1) AS doubled""",
    "a second of the schedule that nobody ran or accounted for": """
        SELECT count(*) FROM jobs AS j
         CROSS JOIN LATERAL (SELECT min(tick_at) AS first, max(tick_at) AS last FROM ticks WHERE job_id = j.id) AS span
         CROSS JOIN LATERAL generate_series(span.first, span.last, '1 s') AS second
         WHERE j.cron_expr IS NOT NULL
           AND NOT EXISTS (SELECT FROM ticks AS t WHERE t.job_id = j.id AND t.tick_at = second)
           AND NOT EXISTS (SELECT FROM tick_gaps AS g
                            WHERE g.job_id = j.id AND second BETWEEN g.from_at AND g.to_at)""",
    "a worker or node that is not forgotten": "SELECT (SELECT count(*) FROM workers) + (SELECT count(*) FROM nodes)",
}


@dataclass(slots=True)
class Storm:
    """One storm over a database; `run` is all of it."""

    connection: Connection
    start_node: Callable[..., NodeProcess]
    folder: Path
    seed: int
    runs: int
    faults: int
    nodes: list[NodeProcess] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    claim_batches: Iterator[int] = field(default_factory=lambda: itertools.cycle(_CLAIM_BATCHES))

    def run(self) -> None:
        """Raises AssertionError, with the seed and the faults, when a promise is broken."""
        self.folder.chmod(0o777)
        (self.folder / "instant.py").write_text(_FUNCTIONS)
        draw = random.Random(self.seed)
        self.nodes = [self._start() for _ in range(3)]
        for node in self.nodes:
            node.wait_for_log("node ready")
        jobs, instant = self._submit_work(), self._submit_instant()
        for number in range(self.faults):
            for job_id in draw.choices(jobs, k=-(-self.runs // self.faults)):
                trigger_job(self.connection, job_id)
            with transaction(self.connection):
                for _ in range(_BURST):
                    runs.enqueue_run(self.connection, job_id=instant, trigger="manual")
            runs.announce_due(self.connection)
            self._let_some_finish(number)
            self._strike(draw)
        self._heal()
        self._check()

    def _start(self) -> NodeProcess:
        return self.start_node(
            worker__concurrency="3",
            worker__claim_batch=str(next(self.claim_batches)),
            python__modules="instant",
            environment={"PYTHONPATH": str(self.folder)},
        )

    def _submit_work(self) -> list[UUID]:
        """Short jobs, one in five longer than the lease, some that fail; and a schedule of every second."""
        line = f'echo "$0 $FORGEFLOW_RUN_ID $FORGEFLOW_ATTEMPT $(date +%s.%N)" >> {self.folder}/ledger'
        work = {
            "short": "sleep 0.0$(($$ % 10))",
            "short-too": "true",
            "failing": "[ $(($$ % 4)) != 0 ]",
            "leaving": "(setsid sleep 30 &)",
            "long": "sleep 2.5",
        }
        jobs = []
        for name, command in work.items():
            script = f"sh -c '{line}' start; {command}; code=$?; sh -c '{line}' end; exit $code"
            # A run of a frozen worker whose master lives ends by its timeout, and not before.
            fields = {"name": name, "paused": True, "max_attempts": 100, "timeout_seconds": 5}
            jobs.append(submit(self.connection, script, **fields))
        submit(self.connection, "true", name="cron", cron_expr="* * * * * *")
        return jobs

    def _submit_instant(self) -> UUID:
        body = {"name": "instant", "executor": "python", "payload": {"function": "instant", "args": {}}}
        request = read_job_request({**body, "paused": True, "max_attempts": 100})
        return submit_job(self.connection, request, source="api").job.id

    def _let_some_finish(self, number: int) -> None:
        def ended() -> int:
            row = self.connection.execute("SELECT count(*) FROM finished_runs").fetchone()
            return int(row[0]) if row else 0

        before = ended()
        wait_for(lambda: ended() >= before + 2, timeout_seconds=30, why=f"something finishes after fault {number}")

    def _strike(self, draw: random.Random) -> None:
        """One fault of a kind that the weights prefer, at a victim that there is."""
        kinds: list[tuple[int, Callable[[random.Random], str]]] = [
            (6, self._kill_worker),
            (2, self._freeze_worker),
            (2, self._kill_scheduler),
            (1, self._freeze_scheduler),
            (2, self._kill_courier),
            (3, self._end_session),
            (2, self._kill_node),
            (1, self._freeze_master),
            (1, self._drain_node),
        ]
        strike = draw.choices([kind for _, kind in kinds], weights=[weight for weight, _ in kinds])[0]
        self.told.append(strike(draw))

    def _signal_child(self, draw: random.Random, role: str, number: int) -> str:
        pids = [pid for node in self.nodes for pid in children_of(node.pid) if role_of(pid) == role]
        if not pids:
            return f"no {role} to hit"
        pid = draw.choice(pids)
        os.kill(pid, number)
        return f"{signal.Signals(number).name} to {role} {pid}"

    def _kill_worker(self, draw: random.Random) -> str:
        return self._signal_child(draw, "worker", signal.SIGKILL)

    def _freeze_worker(self, draw: random.Random) -> str:
        return self._signal_child(draw, "worker", signal.SIGSTOP)

    def _kill_scheduler(self, draw: random.Random) -> str:
        return self._signal_child(draw, "scheduler", signal.SIGKILL)

    def _freeze_scheduler(self, draw: random.Random) -> str:
        return self._signal_child(draw, "scheduler", signal.SIGSTOP)

    def _kill_courier(self, draw: random.Random) -> str:
        return self._signal_child(draw, "courier", signal.SIGKILL)

    def _end_session(self, _draw: random.Random) -> str:
        self.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:%'"
            " AND application_name <> 'forgeflow:test' AND datname = current_database() ORDER BY random() LIMIT 1"
        )
        return "a session ended"

    def _kill_node(self, draw: random.Random) -> str:
        """The master; its workers die with it, and what is above it, here we, ends what their jobs left."""
        node = self.nodes.pop(draw.randrange(len(self.nodes)))
        jobs = descendants_of(node.pid)
        node.signal(signal.SIGKILL)
        node.wait()
        Strays().kill_until_none({other.pid for other in self.nodes} | self._other_children(jobs))
        self.nodes.append(self._start())
        return f"node {node.pid} killed with {len(jobs)} processes"

    def _other_children(self, jobs: list[int]) -> set[int]:
        """Children of the test that are none of a killed node's: the database's server."""
        known = {node.pid for node in self.nodes}
        return {pid for pid in children() if pid not in jobs and pid not in known and not is_of_a_run(pid)}

    def _freeze_master(self, draw: random.Random) -> str:
        """For longer than a lease; its jobs must be dead before that, and nothing be doubled when it wakes."""
        node = draw.choice(self.nodes)
        node.signal(signal.SIGSTOP)
        row = self.connection.execute("SELECT clock_timestamp() + interval '2.5 s'").fetchone()
        assert row
        wait_for(lambda: self._is_past(row[0]), why="the lease has passed")
        node.signal(signal.SIGCONT)
        return f"master {node.pid} frozen past its lease"

    def _is_past(self, instant: Any) -> bool:
        row = self.connection.execute("SELECT clock_timestamp() > %s", [instant]).fetchone()
        return bool(row and row[0])

    def _drain_node(self, draw: random.Random) -> str:
        node = self.nodes.pop(draw.randrange(len(self.nodes)))
        node.wait_for_log("node ready")
        assert node.stop() == 0, node.log_text()
        self.nodes.append(self._start())
        return f"node {node.pid} drained"

    def _heal(self) -> None:
        """No more faults; every run must end, and then every node stop cleanly and be forgotten."""
        self.connection.execute("UPDATE jobs SET status = 'paused', next_run_at = NULL WHERE cron_expr IS NOT NULL")
        wait_for(self._is_quiet, timeout_seconds=60, why=f"every run ends; seed {self.seed}, faults {self.told}")
        # The survivors forget the dead: their workers' leases have passed.
        wait_for(lambda: self._count("SELECT count(*) FROM nodes") == len(self.nodes), why="the dead are forgotten")
        for node in self.nodes:
            node.wait_for_log("node ready")  # before it has its handlers, a TERM simply ends it
            assert node.stop() == 0, node.log_text()

    def _is_quiet(self) -> bool:
        return self._count("SELECT count(*) FROM queue") == 0

    def _count(self, statement: str) -> int:
        row = self.connection.execute(statement).fetchone()
        assert row
        return int(row[0])

    def _check(self) -> None:
        broken = {}
        for what, statement in VIOLATIONS.items():
            row = self.connection.execute(statement).fetchone()
            if row and row[0]:
                broken[what] = row[0]
        broken |= self._check_ledger()
        assert not broken, f"seed {self.seed}: {broken}; faults: {self.told}"

    def _check_ledger(self) -> dict[str, int]:
        """What the jobs say themselves: no try twice, none beside another one, and every success was done."""
        lines = [line.split() for line in (self.folder / "ledger").read_text().splitlines()]
        tries: dict[tuple[str, int], list[str]] = defaultdict(list)
        spans: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
        for kind, run, attempt, at in lines:
            tries[run, int(attempt)].append(kind)
            spans[run].append((float(at), int(attempt), kind))
        ended = {key for key, kinds in tries.items() if "end" in kinds}
        succeeded = self.connection.execute(
            "SELECT f.id::text, f.attempt FROM finished_runs AS f JOIN jobs AS j ON j.id = f.job_id"
            " WHERE f.status = 'succeeded' AND j.cron_expr IS NULL AND j.executor = 'shell'"
        ).fetchall()
        return {
            what: count
            for what, count in {
                "a try that was executed twice": sum(kinds.count("start") > 1 for kinds in tries.values()),
                "a try that went on after the next had begun": sum(map(has_overlap, spans.values())),
                "a success that was never done": len([row for row in succeeded if (row[0], row[1]) not in ended]),
            }.items()
            if count
        }


def has_overlap(span: list[tuple[float, int, str]]) -> bool:
    """Whether a line of an earlier try comes after one of a later try."""
    attempts = [attempt for _, attempt, _ in sorted(span)]
    return attempts != sorted(attempts)


def role_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split()
    except OSError:
        return ""
    return words[1] if words[:1] == ["forgeflow:"] else ""


def is_of_a_run(pid: int) -> bool:
    """Whether the process was started by a job, or is a node's child that has lost its master."""
    try:
        return b"FORGEFLOW_" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return True
