"""What must hold of ticks, whatever happened to leaders and to clocks."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from forgeflow.store.connection import Connection, connect
from tests.support.databases import config_for

_SECONDS = """
    FROM jobs AS j
   CROSS JOIN LATERAL (SELECT min(tick_at) AS first, max(tick_at) AS last FROM ticks WHERE job_id = j.id) AS span
   CROSS JOIN LATERAL generate_series(span.first, span.last, '1 s') AS second
   CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM ticks AS t WHERE t.job_id = j.id AND t.tick_at = second) AS fired,
                              EXISTS (SELECT FROM tick_gaps AS g
                                       WHERE g.job_id = j.id AND second BETWEEN g.from_at AND g.to_at) AS in_gap) AS s
   WHERE j.cron_expr = '* * * * * *'
"""

# Each must count nothing. The names are what would be wrong.
_WRONG = {
    "a second that neither fired nor stands in a gap": f"SELECT count(*) {_SECONDS} AND NOT s.fired AND NOT s.in_gap",
    "a second that fired and stands in a gap": f"SELECT count(*) {_SECONDS} AND s.fired AND s.in_gap",
    "a tick between two seconds": """
        SELECT count(*) FROM ticks JOIN jobs ON jobs.id = job_id
         WHERE cron_expr IS NOT NULL AND tick_at <> date_trunc('second', tick_at)""",
    "a tick that became two runs": """
        SELECT count(*) FROM (SELECT job_id, tick_at FROM runs WHERE tick_at IS NOT NULL
                               GROUP BY 1, 2 HAVING count(*) > 1) AS doubled""",
    "a tick without its run": """
        SELECT count(*) FROM ticks AS t
          LEFT JOIN runs AS r ON (r.id, r.job_id, r.tick_at) = (t.run_id, t.job_id, t.tick_at)
         WHERE t.run_id IS NOT NULL AND r.id IS NULL""",
    "a run of a schedule without its tick": """
        SELECT count(*) FROM runs AS r LEFT JOIN ticks AS t ON t.run_id = r.id
         WHERE (r.tick_at IS NOT NULL OR r.trigger IN ('cron', 'catch_up')) AND t.run_id IS NULL""",
    "a clock that is not after its last tick": """
        SELECT count(*) FROM jobs WHERE next_run_at <= (SELECT max(tick_at) FROM ticks WHERE job_id = jobs.id)""",
}
_SHRUNK = """
    SELECT count(*) FROM (SELECT term < lag(term) OVER (PARTITION BY job_id ORDER BY tick_at) AS shrinks
                            FROM ticks) AS told
     WHERE shrinks"""


@contextmanager
def patient_connection(url: str) -> Iterator[Connection]:
    """One that waits 30 s for an answer: making and checking many thousand rows is no matter of a moment."""
    patience = {"lease_duration": "5m", "heartbeat_interval": "1m", "statement_deadline": "30s"}
    config = config_for(url, **{f"worker__{name}": value for name, value in patience.items()})
    opened = connect(config, "test")
    try:
        yield opened
    finally:
        opened.close()


def assert_ticks_are_right(connection: Connection, *, told: str = "", has_one_leader: bool = True) -> None:
    """Every second of each `* * * * * *` job, from its first tick to its last, fired once or stands in one gap.

    `told` is shown when it fails. Of two leaders by force, terms need not grow.
    """
    statements = _WRONG | ({"a term that shrinks": _SHRUNK} if has_one_leader else {})
    broken = {}
    with connection.transaction():  # one view of all: the nodes go on meanwhile
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for what, statement in statements.items():
            if wrong := count(connection, statement):
                broken[what] = wrong
    assert not broken, f"{broken}; {told}"


def count(connection: Connection, statement: str) -> int:
    row = connection.execute(statement).fetchone()
    assert row
    return int(row[0])


def ticks_of(connection: Connection, job_id: UUID) -> list[datetime]:
    rows = connection.execute("SELECT tick_at FROM ticks WHERE job_id = %s ORDER BY tick_at", [job_id]).fetchall()
    return [row[0] for row in rows]


def server_clock(connection: Connection) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row
    found: datetime = row[0]
    return found


def copy_job(connection: Connection, job_id: UUID, copies: int) -> None:
    """More jobs that are like this one in everything but their id."""
    connection.execute(
        "INSERT INTO jobs SELECT (jsonb_populate_record(j, jsonb_build_object('id', uuid_v7()))).*"
        " FROM jobs AS j, generate_series(1, %s) WHERE id = %s",
        [copies, job_id],
    )
