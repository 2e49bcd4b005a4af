"""What may be wrong around a node, each with its cure: judged from facts, and the facts collected.

The `check_…` functions are pure. Nothing here writes to the database.
"""

import os
import re
import resource
import socket
import time
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from forgeflow.config import Config, Worker
from forgeflow.errors import SchemaMismatch, StoreError
from forgeflow.store import jobs, nodes, schema, ticks
from forgeflow.store.connection import Connection, shown_url, transaction
from forgeflow.store.nodes import NodeRow, ServerFacts
from forgeflow.store.ticks import Leader

OLDEST_SERVER, NEWEST_SERVER = 15, 18
CLOCK_SECONDS = 2.0
TRANSACTION_SECONDS = 3600.0

# Courier and scheduler; each child has one connection.
_OTHER_CHILDREN = 2
# What the master has open for each child is its link (measured: 10 files with 4 children, 18 with 12); and a reserve.
_RESERVED_FILES = 64
# A worker, and the shell of its job.
_PROCESSES_EACH = 2
# After its budget a frozen courier gets 2 s for its traceback; the next one has to start and to connect.
_REPLACEMENT_SECONDS = 3.0
_CLOCK_SAMPLES = 3


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at and found; `cure` is a sentence, empty only when nothing is to be cured."""

    name: str
    verdict: Verdict
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much is left of something that the system bounds, and by what."""

    left: int
    of: str


Note = Callable[[Check], None]


def _ok(name: str, told: str) -> Check:
    return Check(name, Verdict.OK, told)


def _warning(name: str, told: str, cure: str) -> Check:
    return Check(name, Verdict.WARNING, told, cure)


def _failed(name: str, told: str, cure: str) -> Check:
    return Check(name, Verdict.FAILED, told, cure)


# The configuration and this machine


def check_reading(file: str | None, variables: Sequence[str]) -> Check:
    return _ok("configuration", f"file {file or 'none'}; environment {', '.join(variables) or 'none'}")


def check_problem(problem: str) -> Check:
    """One thing that is wrong with the configuration."""
    return _failed(
        "configuration", problem, "Correct it, and see with `forgeflow check-config` that nothing else is wrong."
    )


def check_intervals(worker: Worker) -> Check:
    """Whether the intervals keep the distances of the defaults, which were tried; less was refused before."""
    lease, beat, deadline = worker.lease_duration, worker.heartbeat_interval, worker.statement_deadline
    margin, grace = worker.fence_margin, worker.fence_grace
    replaced, fenced = 1.5 * beat + deadline + _REPLACEMENT_SECONDS, lease - margin
    tight = []
    if fenced < 2.5 * beat:
        tight.append(
            f"jobs are stopped {fenced:g}s after a beat, less than 2.5 worker.heartbeat_interval of {beat:g}s: "
            "two beats that fail are one too many"
        )
    if deadline > beat / 2:
        tight.append(f"worker.statement_deadline of {deadline:g}s is more than half of a heartbeat of {beat:g}s")
    if grace > 0.6 * margin:
        tight.append(f"worker.fence_grace of {grace:g}s is more than 0.6 of worker.fence_margin of {margin:g}s")
    if replaced > fenced:
        tight.append(
            f"a frozen courier is replaced after {replaced:g}s, but jobs are stopped {fenced:g}s after the last beat"
        )
    if tight:
        return _warning(
            "intervals",
            "; ".join(tight),
            "Keep the proportions of the defaults: lease 30s, heartbeat 10s, deadline 5s, fence_margin 5s, "
            "fence_grace 3s; longer ones are fine.",
        )
    return _ok("intervals", f"lease {lease:g}s, heartbeat {beat:g}s, deadline {deadline:g}s, margin {margin:g}s")


def check_files(limit: Limit, *, concurrency: int) -> Check:
    needed = _RESERVED_FILES + _OTHER_CHILDREN + concurrency
    told = f"{limit.left} by {limit.of}; the master needs {needed} for worker.concurrency {concurrency}"
    if limit.left < needed:
        return _warning("open files", told, "Raise it for the node: `ulimit -n`, or LimitNOFILE= in its unit.")
    return _ok("open files", told)


def check_processes(limit: Limit | None, *, concurrency: int) -> Check:
    needed = _OTHER_CHILDREN + 1 + _PROCESSES_EACH * concurrency
    if limit is None:
        return _ok("processes", f"no limit; a node needs {needed} for worker.concurrency {concurrency}")
    told = f"{limit.left} left by {limit.of}; a node needs {needed} for worker.concurrency {concurrency}"
    if limit.left < needed:
        return _warning(
            "processes",
            told,
            "Raise it for the node: `ulimit -u`, TasksMax= in its unit, or the container's limit of processes.",
        )
    return _ok("processes", told)


def check_zones(count: int, source: str) -> Check:
    if count == 0:
        return _failed(
            "time zones", "no time zone data was found", "Install it: `apt-get install tzdata` or `pip install tzdata`."
        )
    return _ok("time zones", f"{count} zones from {source}")


# The database


_REFUSALS: Sequence[tuple[str, str]] = [
    (
        r"unsupported startup parameter",
        "This is a pooler: let database.url lead to PostgreSQL itself, for nodes need direct connections.",
    ),
    (
        r"authentication failed|no password supplied|pg_hba\.conf",
        "Correct user and password in database.url, or let this machine in with a line in the server's pg_hba.conf.",
    ),
    (r'role ".*" (does not exist|is not permitted)', "Create the role, or correct the user in database.url."),
    (
        r'database ".*" does not exist',
        "Create it with `CREATE DATABASE`, or correct the database's name in database.url.",
    ),
    (
        r"too many (clients|connections)|remaining connection slots",
        "Raise max_connections or the limit of the role or database, or close connections that nobody needs.",
    ),
    (r"starting up|shutting down|in recovery mode", "Wait until the server serves; its log says how far it is."),
    (
        r"resolve host|translate host|name or service|in name resolution",
        "Correct the name of the host in database.url.",
    ),
    (
        r"connection refused|no such file or directory|no route to host|unreachable",
        "Start the server, or correct host and port in database.url.",
    ),
    (
        r"timeout|timed out|no answer",
        "See whether the server hangs or is overloaded, and whether a firewall drops the connection.",
    ),
]
_OTHER_REFUSAL = "See the server's log for the reason, and check database.url."


def check_refusal(reason: str) -> Check:
    """Why no connection came about, or why it broke, from the words of libpq and of the server."""
    cure = next((cure for signs, cure in _REFUSALS if re.search(signs, reason, re.IGNORECASE)), _OTHER_REFUSAL)
    return _failed("database", reason, cure)


def check_reached(url: str, seconds: float) -> Check:
    return _ok("database", f"reached in {seconds * 1000:.0f} ms: {shown_url(url)}")


def check_version(number: int) -> Check:
    major, told = number // 10000, f"PostgreSQL {number // 10000}.{number % 10000}"
    supported = f"{OLDEST_SERVER} to {NEWEST_SERVER}"
    if major < OLDEST_SERVER:
        return _failed("server version", f"{told}; expected {supported}", "Upgrade the server.")
    if major > NEWEST_SERVER:
        return _failed(
            "server version",
            f"{told}; this ForgeFlow was tested with {supported}",
            f"Upgrade ForgeFlow, or use a server of version {supported}.",
        )
    return _ok("server version", told)


def check_primary(*, is_standby: bool) -> Check:
    if is_standby:
        return _failed(
            "primary",
            "the server is a standby, where nothing can be written",
            "Let database.url lead to the primary; with several hosts add target_session_attrs=read-write.",
        )
    return _ok("primary", "the server takes writes")


def check_direct(*, is_direct: bool) -> Check:
    if not is_direct:
        return _failed(
            "direct connection",
            "database.url leads through a transaction pooler, where locks and notifications get lost",
            "Let database.url lead to PostgreSQL itself: nodes need direct connections.",
        )
    return _ok("direct connection", "no transaction pooler")


def check_schema(mismatch: SchemaMismatch | None, name: str) -> Check:
    if mismatch is None:
        return _ok("schema", f"{name} is at version {schema.migrations()[-1].version}, as this ForgeFlow is")
    told = str(mismatch).removesuffix("; run `forgeflow migrate`")
    if told != str(mismatch):
        return _failed("schema", told, "Run `forgeflow migrate`.")
    told, _, cure = told.partition(": ")
    return _failed("schema", told, f"{cure[:1].upper()}{cure[1:]}.")


def check_clock(seconds: float, *, doubt: float) -> Check:
    """`seconds` that this machine is ahead of the database, give or take `doubt`, half of a round trip."""
    way = "ahead of" if seconds > 0 else "behind"
    told = f"this machine is {abs(seconds):.3f} s {way} the database, give or take {doubt:.3f} s"
    if abs(seconds) - doubt > CLOCK_SECONDS:
        return _warning(
            "clock",
            told,
            "Run an NTP client such as chrony on both; leases and ticks go by the database's clock, logs by this one.",
        )
    return _ok("clock", told)


def check_durability(facts: ServerFacts) -> Check:
    off = [name for name in ("fsync", "synchronous_commit") if getattr(facts, name) == "off"]
    if off:
        return _warning(
            "durability",
            f"off: {', '.join(off)}; jobs that were accepted may be lost in a crash of the server",
            f"Set on the server: {', '.join(f'{name} = on' for name in off)}.",
        )
    return _ok("durability", f"fsync {facts.fsync}, synchronous_commit {facts.synchronous_commit}")


def check_transactions(facts: ServerFacts) -> Check:
    hidden = facts.hidden_transactions
    unseen = f"; {hidden} of other roles cannot be seen (GRANT pg_read_all_stats)" if hidden else ""
    if facts.oldest_seconds is None:
        return _ok("transactions", f"none is open{unseen}")
    who = f"process {facts.oldest_pid}, {facts.oldest_application or 'unnamed'}"
    if facts.oldest_pid is None:
        who = str(facts.oldest_application)
    told = f"the oldest is open for {_in_words(facts.oldest_seconds)} ({who}){unseen}"
    if facts.oldest_seconds > TRANSACTION_SECONDS:
        cure = (
            "End what holds it open, for dead rows pile up in the queue meanwhile: "
            f"`SELECT pg_terminate_backend({facts.oldest_pid})`."
            if facts.oldest_pid
            else "Commit it or roll it back (`ROLLBACK PREPARED`), for dead rows pile up in the queue meanwhile."
        )
        return _warning("transactions", told, cure)
    return _ok("transactions", told)


def _in_words(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def check_connections(facts: ServerFacts, *, needed: int) -> Check:
    """`needed` are those that this node has not yet; one of those in use is our own, and will be free."""
    limits = {
        "max_connections of the server": facts.server_left,
        "the database's CONNECTION LIMIT": facts.database_left,
        "the role's CONNECTION LIMIT": facts.role_left,
    }
    left, which = min((left + 1, which) for which, left in limits.items() if left is not None)
    told = f"{left} left by {which}; this node needs {needed}{'' if needed else ' more, for it lives'}"
    if left < needed:
        return _failed("connections", told, "Raise that limit, lower worker.concurrency, or close what nobody needs.")
    return _ok("connections", told)


def check_leader(leader: Leader) -> Check:
    if not leader.is_led:
        return _warning(
            "leader", "no scheduler leads: no cron job becomes due", "Start a node that has scheduler in server.roles."
        )
    return _ok("leader", f"{leader.worker_id} leads, term {leader.term}" if leader.worker_id else "a scheduler leads")


def check_workers(fleet: Iterable[NodeRow]) -> Check:
    living = [node for node in fleet if node.is_alive and node.workers]
    if not living:
        return _warning("workers", "no worker lives: nothing runs", "Start a node that has worker in server.roles.")
    named = ", ".join(f"{node.worker_id} ({node.workers})" for node in living)
    return _ok("workers", f"{sum(node.workers for node in living)} on {_counted(len(living), 'node')}: {named}")


def check_nodes(fleet: Sequence[NodeRow]) -> Check:
    passed = [node for node in fleet if not node.is_alive]
    living = _counted(len(fleet) - len(passed), "node")
    if passed:
        named = ", ".join(f"{node.worker_id} (host {node.hostname}, pid {node.pid})" for node in passed)
        return _warning(
            "nodes",
            f"{living} living; the lease has passed of {named}",
            "Start it again under the same worker.id, or let another node live, which takes its runs and forgets it.",
        )
    return _ok("nodes", f"{living} living, no lease has passed")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def missing_connections(config: Config, fleet: Iterable[NodeRow], hostname: str) -> int:
    """What this node would still open; nothing when it lives, by its name or, without one, by its host."""
    workers = config.worker.concurrency if "worker" in config.server.roles else 0
    name = config.worker.id
    own = [node for node in fleet if node.is_alive and (node.worker_id == name if name else node.hostname == hostname)]
    had = max((node.concurrency + _OTHER_CHILDREN for node in own), default=0)
    return max(0, workers + _OTHER_CHILDREN - had)


# The facts


def examine_machine(config: Config, note: Note) -> None:
    """The checks that need no database.  Blocks no longer than /proc and the zones' folder do."""
    note(check_intervals(config.worker))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = 2**31 if soft == resource.RLIM_INFINITY else soft
    note(check_files(Limit(unlimited, "the limit that we run under"), concurrency=config.worker.concurrency))
    note(check_processes(_process_limit(), concurrency=config.worker.concurrency))


def examine_zones(note: Note) -> None:
    found = [folder for folder in zoneinfo.TZPATH if Path(folder, "Europe/Berlin").is_file()]
    note(check_zones(len(zoneinfo.available_timezones()), found[0] if found else "the package tzdata"))


def _process_limit() -> Limit | None:
    """The tightest of those that bound us: of the user, and of each control group above us."""
    limits = list(group_limits())
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY:
        limits.append(Limit(soft - _own_threads(), "the user's limit"))
    return min(limits, key=lambda limit: limit.left, default=None)


def _own_threads() -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                count += sum(1 for _ in (entry / "task").iterdir())
        except OSError:  # it has ended
            continue
    return count


def group_limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Iterable[Limit]:
    """How many processes each control group above us still takes, of those that have a limit (cgroup v2)."""
    try:
        path = next(line[3:].strip() for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return
    folder = root / path.lstrip("/")
    for group in (folder, *folder.parents):
        try:
            most, now = (group / "pids.max").read_text().strip(), (group / "pids.current").read_text()
        except OSError:
            most, now = "max", "0"
        if most != "max":
            yield Limit(int(most) - int(now), f"pids.max of {group}")
        if group == root:
            return


def examine_database(connection: Connection, config: Config, note: Note) -> None:
    """The checks of a database that was reached, in transactions of their own, so in ones that may be read-only.

    What an earlier check makes senseless is left out: behind a transaction pooler no setting of ours holds, and
    without its tables nobody can be asked for. Blocks for a few statements, each with its deadline.  Raises
    StoreUnavailable when the connection breaks.
    """
    with transaction(connection):
        session = nodes.session_facts(connection)
        facts = nodes.server_facts(connection)
    is_direct = session.backend_pid == connection.info.backend_pid
    note(check_version(facts.version_number))
    note(check_primary(is_standby=session.is_standby))
    note(check_direct(is_direct=is_direct))
    fleet: list[NodeRow] = []
    if is_direct:
        _try("schema", connection, note, lambda: note(_schema(connection, config)))
        _try("nodes", connection, note, lambda: fleet.extend(_fleet(connection, note)))
    note(_clock(connection))
    note(check_durability(facts))
    note(check_transactions(facts))
    note(check_connections(facts, needed=missing_connections(config, fleet, socket.gethostname())))


def _try(name: str, connection: Connection, note: Note, check: Callable[[], None]) -> None:
    """Note what kept a check from being made, unless it is the end of all of them."""
    try:
        check()
    except StoreError as error:
        if connection.closed:
            raise
        if not isinstance(error, SchemaMismatch):  # told by the check of the schema
            cure = "See what holds the lock, a migration perhaps, and what this role may read."
            note(_failed(name, str(error), cure))


def _schema(connection: Connection, config: Config) -> Check:
    try:
        with transaction(connection):
            schema.require_current(connection)
    except SchemaMismatch as mismatch:
        return check_schema(mismatch, config.database.schema_name)
    return check_schema(None, config.database.schema_name)


def _fleet(connection: Connection, note: Note) -> list[NodeRow]:
    with transaction(connection):
        fleet = nodes.list_nodes(connection)
        leader = ticks.find_leader(connection)
    note(check_leader(leader))
    note(check_workers(fleet))
    note(check_nodes(fleet))
    return fleet


def _clock(connection: Connection) -> Check:
    """By the quickest of a few answers."""
    samples = []
    with transaction(connection):
        for _ in range(_CLOCK_SAMPLES):
            sent_at, begun = datetime.now(UTC), time.monotonic()
            now = jobs.server_now(connection)
            doubt = (time.monotonic() - begun) / 2
            samples.append((doubt, (sent_at - now).total_seconds() + doubt))
    doubt, seconds = min(samples)
    return check_clock(seconds, doubt=doubt)
