"""What doctor makes of what it finds: the verdicts, without a database."""

import re
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from forgeflow.config import Config, Worker, load_config
from forgeflow.errors import SchemaMismatch
from forgeflow.service import doctor
from forgeflow.service.doctor import Check, Limit, Verdict
from forgeflow.store.nodes import NodeRow, ServerFacts
from forgeflow.store.ticks import Leader

OK, WARNING, FAILED = Verdict.OK, Verdict.WARNING, Verdict.FAILED
SOUND = ServerFacts(
    version_number=180006,
    fsync="on",
    synchronous_commit="on",
    server_left=90,
    database_left=None,
    role_left=None,
    oldest_seconds=None,
    oldest_pid=None,
    oldest_application=None,
    hidden_transactions=0,
)
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def node(name: str, *, is_alive: bool = True, workers: int = 8, hostname: str = "host") -> NodeRow:
    return NodeRow(
        boot_id=uuid4(),
        worker_id=name,
        hostname=hostname,
        pid=7,
        roles=["worker"],
        concurrency=8,
        version="0.1.0",
        started_at=NOW,
        heartbeat_at=NOW,
        is_alive=is_alive,
        workers=workers,
        running=0,
        is_leader=False,
    )


@pytest.mark.parametrize(
    ("number", "verdict", "cure"),
    [
        (140011, FAILED, "Upgrade the server."),
        (150000, OK, ""),
        (180006, OK, ""),
        (190000, FAILED, "Upgrade ForgeFlow, or use a server of version 15 to 18."),
    ],
)
def test_server_version_must_be_15_to_18(number: int, verdict: Verdict, cure: str) -> None:
    check = doctor.check_version(number)
    assert (check.verdict, check.cure) == (verdict, cure)


@pytest.mark.parametrize(
    ("seconds", "doubt", "verdict"),
    [(0.0, 0.0, OK), (1.9, 0.0, OK), (2.5, 0.1, WARNING), (-2.5, 0.1, WARNING), (-3.0, 1.5, OK), (86400, 1, WARNING)],
)
def test_clock_difference_warns_only_beyond_doubt(seconds: float, doubt: float, verdict: Verdict) -> None:
    assert doctor.check_clock(seconds, doubt=doubt).verdict is verdict


def test_clock_says_which_way_it_is_off() -> None:
    assert doctor.check_clock(3, doubt=0).found.startswith("this machine is 3.000 s ahead of the database")
    assert doctor.check_clock(-3, doubt=0).found.startswith("this machine is 3.000 s behind the database")


@pytest.mark.parametrize(
    ("limits", "needed", "verdict", "found"),
    [
        ({}, 10, OK, "91 left by max_connections of the server; this node needs 10"),
        ({"server_left": 9}, 10, OK, "10 left by max_connections of the server"),
        ({"server_left": 8}, 10, FAILED, "9 left by max_connections of the server"),
        ({"role_left": 3}, 10, FAILED, "4 left by the role's CONNECTION LIMIT"),
        ({"database_left": 3, "role_left": 5}, 10, FAILED, "4 left by the database's CONNECTION LIMIT"),
        ({"server_left": -1}, 0, OK, "0 left by max_connections of the server; this node needs 0 more, for it lives"),
    ],
)
def test_connections_left_must_be_enough_for_the_node(
    limits: dict[str, int], needed: int, verdict: Verdict, found: str
) -> None:
    check = doctor.check_connections(ServerFacts(**(asdict(SOUND) | limits)), needed=needed)
    assert check.verdict is verdict
    assert check.found.startswith(found)


def configured(**settings: str) -> Config:
    return load_config("/dev/null", environ={}, overrides={key.replace("__", "."): v for key, v in settings.items()})


@pytest.mark.parametrize(
    ("config", "fleet", "missing"),
    [
        (configured(), [], 10),
        (configured(server__roles="scheduler"), [], 2),
        (configured(worker__id="a"), [node("a")], 0),
        (configured(worker__id="a", worker__concurrency="12"), [node("a")], 4),
        (configured(worker__id="a"), [node("b")], 10),
        (configured(worker__id="a"), [node("a", is_alive=False)], 10),
        (configured(), [node("host-7")], 0),
        (configured(), [node("host-7", hostname="other")], 10),
    ],
)
def test_node_that_lives_has_its_connections_already(config: Config, fleet: list[NodeRow], missing: int) -> None:
    assert doctor.missing_connections(config, fleet, "host") == missing


def test_durability_that_is_off_is_a_warning() -> None:
    assert doctor.check_durability(SOUND).verdict is OK
    assert doctor.check_durability(replace(SOUND, synchronous_commit="local")).verdict is OK
    check = doctor.check_durability(replace(SOUND, fsync="off", synchronous_commit="off"))
    assert (check.verdict, check.cure) == (WARNING, "Set on the server: fsync = on, synchronous_commit = on.")


def test_old_transaction_is_a_warning_that_names_its_process() -> None:
    young = replace(SOUND, oldest_seconds=3599.0, oldest_pid=42, oldest_application="psql")
    assert doctor.check_transactions(young).verdict is OK
    check = doctor.check_transactions(replace(young, oldest_seconds=7300.0))
    assert check.verdict is WARNING
    assert check.found == "the oldest is open for 2.0 h (process 42, psql)"
    assert "pg_terminate_backend(42)" in check.cure
    prepared = replace(young, oldest_seconds=7300.0, oldest_pid=None, oldest_application="prepared transaction x")
    assert "ROLLBACK PREPARED" in doctor.check_transactions(prepared).cure


def test_transactions_that_cannot_be_seen_are_counted() -> None:
    check = doctor.check_transactions(replace(SOUND, hidden_transactions=3))
    assert check.verdict is OK
    assert check.found == "none is open; 3 of other roles cannot be seen (GRANT pg_read_all_stats)"


def test_fleet_without_leader_or_worker_is_a_warning() -> None:
    assert doctor.check_leader(Leader(is_led=False, worker_id="old", term=3)).verdict is WARNING
    assert doctor.check_leader(Leader(is_led=True, worker_id="a", term=3)).found == "a leads, term 3"
    assert doctor.check_leader(Leader(is_led=True, worker_id=None, term=None)).verdict is OK
    assert doctor.check_workers([]).verdict is WARNING
    assert doctor.check_workers([node("a", is_alive=False), node("b", workers=0)]).verdict is WARNING
    assert doctor.check_workers([node("a"), node("b", workers=2)]).found == "10 on 2 nodes: a (8), b (2)"


def test_node_whose_lease_has_passed_is_a_warning() -> None:
    assert doctor.check_nodes([]).verdict is OK
    assert doctor.check_nodes([node("a")]).found == "1 node living, no lease has passed"
    check = doctor.check_nodes([node("a"), node("b", is_alive=False)])
    assert check.verdict is WARNING
    assert check.found == "1 node living; the lease has passed of b (host host, pid 7)"


INTERVALS = ("lease_duration", "heartbeat_interval", "statement_deadline", "fence_margin", "fence_grace")


@pytest.mark.parametrize("factor", [1, 1.5, 2, 10])
def test_default_intervals_are_fine_and_so_is_any_multiple(factor: float) -> None:
    default = Worker()
    longer = default.model_copy(update={name: factor * getattr(default, name) for name in INTERVALS})
    assert doctor.check_intervals(longer).verdict is OK


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"fence_margin": 6.0}, "jobs are stopped 24s after a beat, less than 2.5 worker.heartbeat_interval of 10s"),
        ({"statement_deadline": 6.0}, "worker.statement_deadline of 6s is more than half of a heartbeat of 10s"),
        ({"fence_grace": 4.0}, "worker.fence_grace of 4s is more than 0.6 of worker.fence_margin of 5s"),
        (
            {name: getattr(Worker(), name) / 5 for name in INTERVALS},
            "a frozen courier is replaced after 7s, but jobs are stopped 5s after the last beat",
        ),
    ],
)
def test_intervals_tighter_than_the_defaults_are_told_with_their_numbers(
    settings: dict[str, float], found: str
) -> None:
    check = doctor.check_intervals(Worker().model_copy(update=settings))
    assert check.verdict is WARNING
    assert check.found.startswith(found)


def test_limits_of_files_and_processes_are_held_against_concurrency() -> None:
    assert doctor.check_files(Limit(1024, "x"), concurrency=512).verdict is OK
    assert doctor.check_files(Limit(256, "x"), concurrency=512).verdict is WARNING
    assert doctor.check_processes(None, concurrency=512).verdict is OK
    assert doctor.check_processes(Limit(19, "x"), concurrency=8).verdict is OK
    check = doctor.check_processes(Limit(18, "the user's limit"), concurrency=8)
    assert check.verdict is WARNING
    assert check.found == "18 left by the user's limit; a node needs 19 for worker.concurrency 8"


def test_limits_of_control_groups_are_those_of_all_above(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "self"
    own.write_text("1:name=x:/old\n0::/a/b\n")
    for path, most, now in (("", None, None), ("a", "100", "40"), ("a/b", "max", "3")):
        (root / path).mkdir(exist_ok=True)
        if most:
            (root / path / "pids.max").write_text(f"{most}\n")
            (root / path / "pids.current").write_text(f"{now}\n")
    assert list(doctor.group_limits(root, own)) == [Limit(60, f"pids.max of {root}/a")]
    assert list(doctor.group_limits(root, tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        ('connection to server at "127.0.0.1", port 1 failed: Connection refused', "Start the server"),
        ("connection to server on socket failed: No such file or directory", "Start the server"),
        ("failed to resolve host 'x': [Errno -2] Name or service not known", "Correct the name of the host"),
        ('FATAL:  password authentication failed for user "me"', "Correct user and password"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "me"', "Correct user and password"),
        ("connection is bad: fe_sendauth: no password supplied", "Correct user and password"),
        ('FATAL:  role "me" does not exist', "Create the role"),
        ('FATAL:  database "forge" does not exist', "Create it"),
        ("FATAL:  sorry, too many clients already", "Raise max_connections"),
        ('FATAL:  too many connections for role "me"', "Raise max_connections"),
        ("FATAL:  the database system is starting up", "Wait until"),
        ("cannot connect to the database: connection timeout expired", "See whether the server hangs"),
        ("no answer from the database within 30 s", "See whether the server hangs"),
        ("FATAL:  unsupported startup parameter in options: lock_timeout", "This is a pooler"),
        ("something new", "See the server's log for the reason"),
    ],
)
def test_each_refusal_of_a_connection_has_its_own_cure(reason: str, cure: str) -> None:
    check = doctor.check_refusal(reason)
    assert check.verdict is FAILED
    assert check.cure.startswith(cure)


def test_each_mismatch_of_the_schema_has_its_own_cure() -> None:
    lacks = doctor.check_schema(SchemaMismatch("the database lacks schema version 2; run `forgeflow migrate`"), "s")
    assert (lacks.found, lacks.cure) == ("the database lacks schema version 2", "Run `forgeflow migrate`.")
    newer = doctor.check_schema(SchemaMismatch("the database has version 9: update ForgeFlow on this machine"), "s")
    assert (newer.found, newer.cure) == ("the database has version 9", "Update ForgeFlow on this machine.")
    assert doctor.check_schema(None, "s").verdict is OK


def test_time_zones_must_be_there() -> None:
    assert doctor.check_zones(0, "nowhere").verdict is FAILED
    assert doctor.check_zones(599, "/usr/share/zoneinfo").verdict is OK


ALL_BAD = [
    doctor.check_problem("worker.concurrency: expected a number"),
    doctor.check_version(140000),
    doctor.check_version(200000),
    doctor.check_primary(is_standby=True),
    doctor.check_direct(is_direct=False),
    doctor.check_schema(SchemaMismatch("the database lacks schema version 2; run `forgeflow migrate`"), "s"),
    doctor.check_schema(SchemaMismatch("the database has version 9: update ForgeFlow; older ones never write"), "s"),
    doctor.check_clock(9, doubt=0),
    doctor.check_connections(replace(SOUND, server_left=0), needed=10),
    doctor.check_durability(replace(SOUND, fsync="off")),
    doctor.check_transactions(replace(SOUND, oldest_seconds=9999.0, oldest_pid=1)),
    doctor.check_transactions(replace(SOUND, oldest_seconds=9999.0)),
    doctor.check_leader(Leader(is_led=False, worker_id=None, term=None)),
    doctor.check_workers([]),
    doctor.check_nodes([node("a", is_alive=False)]),
    doctor.check_intervals(Worker().model_copy(update={"fence_grace": 4.0})),
    doctor.check_files(Limit(1, "x"), concurrency=8),
    doctor.check_processes(Limit(1, "x"), concurrency=8),
    doctor.check_zones(0, "nowhere"),
    *(doctor.check_refusal(reason) for reason in ("timeout", "Connection refused", "?")),
]


@pytest.mark.parametrize("check", ALL_BAD, ids=lambda check: check.name)
def test_whatever_is_not_ok_has_a_cure_of_one_sentence(check: Check) -> None:
    assert check.verdict is not OK
    assert re.fullmatch(r"[A-Z][^\n]*\.", check.cure)
    assert not re.search(r"[a-z`)]\. [A-Z]", check.cure)
    assert "\n" not in check.found
    assert not check.found.endswith(".")
