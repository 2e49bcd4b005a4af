"""What a schedule and a pass of the leader cost: `make bench-scheduler`.

Ours and raw croniter are asked in turns in one process, so that a slow moment of the machine hits both; figures are
medians of these rounds, and to be read as ratios. The passes go over embedded servers as users have them, durable, in
this process: `run_pass` itself, without the wait before it. Their log lines are written, but to nowhere.
"""

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4
from zoneinfo import ZoneInfo

from croniter import croniter

from forgeflow.config import Config
from forgeflow.domain.preview import MAX_COUNT, preview
from forgeflow.domain.schedule import Schedule
from forgeflow.embedded import start_server, stop_server
from forgeflow.errors import CronError
from forgeflow.log import set_up_logging
from forgeflow.scheduler.ticks import TickPasses
from forgeflow.store import ticks
from forgeflow.store.connection import Connection, connect
from forgeflow.store.schema import migrate
from tests.support.databases import config_for, make_database
from tests.support.schedules import Texts

ROUNDS = 15
ASKS = 20
TEXTS = 20_000
PREVIEWS = 1_000
IDLE_JOBS = (100, 100_000)
IDLE_PASSES = 300
DUE_JOBS = 10_000
CATCH_UP_LIMIT = 10

EXPRESSIONS = [
    *("* * * * *", "*/5 * * * *", "0 * * * *", "30 2 * * *", "0 9 * * MON-FRI", "15 14 1 * *", "0 0 * * 0"),
    *("23 0-20/2 * * *", "*/15 9-17 * * 1-5", "0 0 1 1 *", "0 0 13 * FRI", "0 0 L * *", "*/10 * * * * *"),
]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
START = datetime(2026, 1, 1, tzinfo=UTC)


def line(name: str, value: str) -> None:
    sys.stdout.write(f"{name:44} {value}\n")
    sys.stdout.flush()


# -- Schedules -------------------------------------------------------------------------------------


def timed(ask: Callable[[datetime], object], instants: list[datetime]) -> float:
    """Seconds per ask."""
    began = time.perf_counter()
    for instant in instants:
        ask(instant)
    return (time.perf_counter() - began) / len(instants)


def compare_with_croniter() -> None:
    """The same instants, a year of them; croniter gets them on the zone's clock, as it must, made ready outside."""
    instants = [START + n * timedelta(days=365, seconds=12_345) / ASKS for n in range(ASKS)]
    ours: list[float] = []
    prepared: list[float] = []
    made: list[float] = []
    for expr in EXPRESSIONS:
        for zone in ZONES:
            schedule, raw = Schedule(expr, zone), croniter(expr, START, second_at_beginning=True)
            local = [instant.astimezone(ZoneInfo(zone)) for instant in instants]
            rounds = [
                (
                    timed(schedule.next_after, instants),
                    timed(lambda start: raw.get_next(datetime, start), local),  # noqa: B023
                    timed(lambda start: croniter(expr, start, second_at_beginning=True).get_next(datetime), local),  # noqa: B023
                )
                for _ in range(ROUNDS)
            ]
            for found, times in zip((ours, prepared, made), zip(*rounds, strict=True), strict=True):
                found.append(statistics.median(times))
    of = f"({len(ours)} schedules, {ROUNDS} rounds of {ASKS} instants)"
    line("next_after", f"{statistics.median(ours) * 1e6:.1f} µs {of}")
    for name, others in (("a prepared croniter", prepared), ("a croniter made for each ask", made)):
        ratios = sorted(other / mine for mine, other in zip(ours, others, strict=True))
        line(
            f"  its speed over {name}",
            f"{statistics.median(ratios):.2f} median, {ratios[0]:.2f} least; target 0.5 or more",
        )


def ask_any_text() -> None:
    """Reading a text, one step on and one back, from anywhere; a text is new, so nothing of it was kept."""
    texts, watch = Texts(seed=1), Watch()
    read_and_ask("0 0 * * *", "Europe/Berlim", START)  # loads the names of the zones
    right = []
    for _ in range(TEXTS):
        expr, zone, instant = texts.draw(), texts.draw_zone(), texts.draw_instant()
        with watch.measure(expr, zone):
            schedule = read_and_ask(expr, zone, instant)
        if schedule:
            right.append((schedule, instant))
    watch.tell("any text: read, next_after, previous")
    preview_any_text(right[:PREVIEWS])


def read_and_ask(expr: str, zone: str, instant: datetime) -> Schedule | None:
    try:
        schedule = Schedule(expr, zone)
    except CronError:
        return None
    schedule.next_after(instant)
    schedule.previous(instant)
    return schedule


def preview_any_text(right: list[tuple[Schedule, datetime]]) -> None:
    """The words, which are kept for each text, apart from the fires with what changes of the clock do to them."""
    words, fires = Watch(), Watch()
    preview(*right[0])  # loads the words
    for schedule, instant in right[1:]:
        with words.measure(schedule.expr, schedule.zone):
            schedule.describe()
        with fires.measure(schedule.expr, schedule.zone):
            preview(schedule, instant, MAX_COUNT)
    words.tell("describe")
    fires.tell(f"preview of {MAX_COUNT} fires, once described")


class Watch:
    """Times, and the text that took longest by the CPU's clock: the wall's has the turns of others in it."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._worst = (0.0, "", "")

    @contextlib.contextmanager
    def measure(self, expr: str, zone: str) -> Iterator[None]:
        began, cpu_began = time.perf_counter(), time.thread_time()
        yield
        self._worst = max(self._worst, (time.thread_time() - cpu_began, expr, zone))
        self._wall.append(time.perf_counter() - began)

    def tell(self, name: str) -> None:
        ordered = [seconds * 1000 for seconds in sorted(self._wall)]
        p50, p99, most = statistics.median(ordered), ordered[int(len(ordered) * 0.99) - 1], ordered[-1]
        of = f"target at most 10 ms ({len(ordered)} texts)"
        line(name, f"p50 {p50:.3f} ms, p99 {p99:.2f} ms, max {most:.2f} ms; {of}")
        cpu, expr, zone = self._worst
        line("  the worst by CPU", f"{cpu * 1000:.2f} ms: {ascii(expr)[:60]} in {ascii(zone)[:40]}")


# -- Passes ----------------------------------------------------------------------------------------


class Leader:
    """A database of its own, and the passes over it."""

    def __init__(self, server_url: str) -> None:
        config = make_config(make_database(server_url))
        self.connection: Connection = connect(config, "bench")
        migrate(self.connection, config)
        term = ticks.begin_term(self.connection, boot_id=uuid4(), worker_id="bench")
        self._passes = TickPasses(self.connection, config, term)

    def add_jobs(self, count: int, *, cron_expr: str, next_run_at: datetime, catch_up: str = "skip") -> None:
        self.connection.execute(
            "INSERT INTO jobs (name, executor, payload, cron_expr, next_run_at, catch_up, catch_up_limit)"
            " SELECT 'job ' || n, 'shell', '{\"command\": \"true\"}', %s, %s, %s, %s FROM generate_series(1, %s) AS n",
            [cron_expr, next_run_at, catch_up, CATCH_UP_LIMIT, count],
        )
        # Not the others: seen empty, they would be planned as if they stayed so.
        self.connection.execute("ANALYZE jobs")

    def run_pass(self) -> tuple[int, int, float]:
        """Jobs looked at, runs made, seconds."""
        began = time.perf_counter()
        result = self._passes.run_pass()
        return result.jobs, result.runs, time.perf_counter() - began

    def run_until_idle(self) -> tuple[int, float]:
        """Runs made, and seconds, over as many passes as it takes."""
        runs, seconds = 0, 0.0
        while True:
            jobs, made, took = self.run_pass()
            runs, seconds = runs + made, seconds + took
            if not jobs:
                return runs, seconds

    def now(self) -> datetime:
        row = self.connection.execute("SELECT now()").fetchone()
        assert row
        return row[0].astimezone(UTC)  # type: ignore[no-any-return]


def measure_idle_passes(server_url: str) -> None:
    """In turns over two databases."""
    leaders = [Leader(server_url) for _ in IDLE_JOBS]
    for leader, count in zip(leaders, IDLE_JOBS, strict=True):
        leader.add_jobs(count, cron_expr="0 0 * * *", next_run_at=leader.now() + timedelta(days=1))
    rounds = [[leader.run_pass()[2] for leader in leaders] for _ in range(IDLE_PASSES)]
    few, many = (statistics.median(times) for times in zip(*rounds, strict=True))
    line(f"a pass with nothing due, {IDLE_JOBS[0]} jobs", f"{few * 1000:.3f} ms (median of {IDLE_PASSES})")
    line(f"  with {IDLE_JOBS[1]} jobs", f"{many * 1000:.3f} ms, {many / few:.2f} times that; target about 1")
    for leader in leaders:
        leader.connection.close()


def measure_burst(server_url: str) -> None:
    """All due in the second that has just begun, and again tomorrow; from the start of the pass to its end."""
    leader = Leader(server_url)
    due_at = leader.now().replace(microsecond=0)
    leader.add_jobs(DUE_JOBS, cron_expr=f"{due_at:%S %M %H} * * *", next_run_at=due_at)
    runs, seconds = leader.run_until_idle()
    line(
        f"{DUE_JOBS} jobs due in one second",
        f"{seconds:.2f} s until they are {runs} runs, {runs / seconds:.0f} a second; target 2 s",
    )
    leader.connection.close()


def measure_catch_up(server_url: str) -> None:
    """Every minute of a day was missed; the scheduler's own memory, the server's apart."""
    leader = Leader(server_url)
    due_at = leader.now().replace(second=0, microsecond=0) - timedelta(days=1)
    leader.add_jobs(DUE_JOBS, cron_expr="* * * * *", next_run_at=due_at, catch_up="all")
    before = resident_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    jobs, runs, seconds = leader.run_pass()
    line(
        f"catch-up of {DUE_JOBS} jobs after a day",
        f"{seconds:.2f} s for {runs} runs, at most {CATCH_UP_LIMIT} late ones a job; target 30 s"
        f" ({jobs - DUE_JOBS} jobs came due again meanwhile)",
    )
    line(
        "  memory of the process",
        f"{before:.0f} MiB before, {resident_mib('VmHWM'):.0f} at the peak, {resident_mib('VmRSS'):.0f} after",
    )
    leader.connection.close()


def make_config(url: str) -> Config:
    """The intervals that users have, not those of the tests."""
    return config_for(
        url,
        worker__lease_duration="30s",
        worker__heartbeat_interval="10s",
        worker__statement_deadline="5s",
        worker__recovery_interval="5s",
        worker__kill_grace="10s",
        scheduler__campaign_interval="5s",
        scheduler__tick="1s",
    )


def resident_mib(name: str) -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"\n{name}:")[2].split()[0]) / 1024


def main() -> None:
    compare_with_croniter()
    ask_any_text()
    state = Path(tempfile.mkdtemp(prefix="forgeflow-scheduler-"))
    state.chmod(0o755)
    server = start_server(state)
    try:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
            set_up_logging(make_config(server.url).log)
            for measure in (measure_idle_passes, measure_burst, measure_catch_up):
                measure(server.url)
    finally:
        stop_server(server)
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    os.environ.pop("FORGEFLOW_DATABASE_URL", None)
    main()
