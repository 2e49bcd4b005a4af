"""Counts, nodes, health, readiness and metrics, with the database up, down and not migrated."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from prometheus_client import parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser

from forgeflow.domain.run import RunStatus
from tests.support.databases import drop_database, make_database
from tests.support.waiting import wait_for
from tests.support.web import HELLO, WebServer, free_port, insert_node, make_leader, web_server


def samples(families: list[Metric]) -> dict[tuple[str, ...], float]:
    """Name and label values → value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_stats_count_runs_and_jobs_of_every_status(web: WebServer) -> None:
    for command in (None, None, "pause", "cancel"):
        job = web.submit()
        if command:
            web.post(f"/api/jobs/{job['id']}/{command}")
    assert web.get("/api/stats").json() == {
        "runs": {"pending": 2, "running": 0, "succeeded": 0, "dead": 0, "cancelled": 2},
        "jobs": {"active": 2, "paused": 1, "cancelled": 1, "completed": 0},
    }


def test_nodes_show_who_lives_and_who_leads(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    make_leader(rows, insert_node(rows, "node-a"))
    insert_node(rows, "node-b", lease="-1s", workers=0)
    nodes = web.get("/api/nodes").json()["items"]
    assert [(node["worker_id"], node["is_alive"], node["is_leader"], node["workers"]) for node in nodes] == [
        ("node-a", True, True, 2),
        ("node-b", False, False, 0),
    ]
    assert nodes[0].keys() == {
        *("worker_id", "boot_id", "hostname", "pid", "roles", "concurrency", "workers", "running", "version"),
        *("is_alive", "is_leader", "started_at", "heartbeat_at"),
    }


@pytest.mark.parametrize("is_open", [False, True])
def test_metrics_show_runs_by_status_and_nodes(web: WebServer, rows: psycopg.Connection[Any], is_open: bool) -> None:
    web.submit()
    web.submit(paused=True)
    make_leader(rows, insert_node(rows, "node-a"))
    insert_node(rows, "node-b", lease="-1s", workers=0)
    accept = "application/openmetrics-text; version=1.0.0" if is_open else "text/plain"
    answer = web.get("/metrics", {"Accept": accept})
    read = openmetrics_parser.text_string_to_metric_families if is_open else parser.text_string_to_metric_families
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text" if is_open else "text/plain")
    found = samples(list(read(answer.text)))
    assert found["forgeflow_up",] == 1
    assert found["forgeflow_nodes",] == 1
    assert found["forgeflow_leader", "node-a"] == 1
    assert {name[1]: value for name, value in found.items() if name[0] == "forgeflow_runs"} == {
        status: 1 if status == "pending" else 0 for status in RunStatus
    }
    assert found["forgeflow_jobs", "paused"] == 1
    assert found["forgeflow_workers", "idle"] == 2


def test_metrics_escape_a_hostile_node_name(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    name = 'a"\n} 1\nforged_metric 1\n\\'
    insert_node(rows, name)
    found = samples(list(parser.text_string_to_metric_families(web.get("/metrics").text)))
    assert ("forgeflow_leader", name) in found
    assert not [key for key in found if key[0].startswith("forged")]


def test_health_and_readiness_say_ok(web: WebServer) -> None:
    for path in ("/healthz", "/readyz"):
        answer = web.get(path)
        assert (answer.status, answer.json()) == (200, {"status": "ok"})


@pytest.fixture(scope="module")
def web_without_database() -> Iterator[WebServer]:
    url = f"postgresql://somebody:canary-password@127.0.0.1:{free_port()}/nowhere"
    with web_server(url, DATABASE_CONNECT_TIMEOUT="4s") as server:
        yield server
        assert "canary-password" not in server.log.read_text()


def test_without_a_database_health_is_ok_and_readiness_says_why_not(web_without_database: WebServer) -> None:
    assert web_without_database.get("/healthz").json() == {"status": "ok"}
    answer = web_without_database.get("/readyz")
    assert (answer.status, answer.json()["status"]) == (503, "unavailable")
    assert re.search("no connection to the database", answer.json()["reasons"][0])


def test_without_a_database_metrics_say_so_within_a_scrape(web_without_database: WebServer) -> None:
    began = time.monotonic()  # Prometheus gives up after 10 s, and a request waits for database.connect_timeout
    found = samples(list(parser.text_string_to_metric_families(web_without_database.get("/metrics").text)))
    assert time.monotonic() - began < 3.5
    assert found["forgeflow_up",] == 0
    assert {name[0] for name in found} == {"forgeflow_up", "forgeflow_build_info"}


def test_without_a_database_the_api_answers_503_and_when_to_retry(web_without_database: WebServer) -> None:
    requests = [("GET", "/api/jobs", None), ("GET", "/", None), ("POST", "/api/jobs", json.dumps(HELLO))]
    with ThreadPoolExecutor() as pool:
        for answer in pool.map(lambda request: web_without_database.request(*request), requests):
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            if "json" in answer.headers["Content-Type"]:
                assert answer.json()["type"] == "/problems/database-unavailable"
            else:  # a page, which must come back by itself
                assert '<meta http-equiv="refresh"' in answer.text
                assert "The database does not answer" in answer.text
            assert not re.search("psycopg|Traceback|canary-password|nowhere", answer.text)


def test_without_a_database_bad_input_is_still_named(web_without_database: WebServer) -> None:
    answer = web_without_database.post("/api/jobs", {**HELLO, "nope": 1})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "#/nope")


def test_database_that_is_not_migrated_is_told(server_url: str) -> None:
    url = make_database(server_url)
    try:
        with web_server(url) as server:
            answer = server.get("/readyz")
            assert (answer.status, answer.json()["status"]) == (503, "unavailable")
            assert "forgeflow migrate" in answer.json()["reasons"][0]
            assert server.get("/api/jobs").status == 503
            assert server.post("/api/jobs", HELLO).status == 503
            assert "forgeflow_up 0.0" in server.get("/metrics").text
    finally:
        drop_database(server_url, url)


def test_newer_schema_is_not_written_to(server_url: str, template: str) -> None:
    url = make_database(server_url, template=template)
    try:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(
                "INSERT INTO forgeflow.schema_migrations (version, name, checksum) VALUES (9999, 'of_tomorrow', 'x')"
            )
            with web_server(url) as server:
                answer = server.post("/api/jobs", HELLO)
                assert answer.status == 503
                assert "an older one never writes to a newer schema" in answer.json()["detail"]
                assert admin.execute("SELECT count(*) FROM forgeflow.jobs").fetchone() == (0,)
    finally:
        drop_database(server_url, url)


def test_database_that_was_lost_and_comes_back_is_used_again(server_url: str, template: str) -> None:
    url = make_database(server_url, template=template)
    name = str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
    try:
        with web_server(url, DATABASE_CONNECT_TIMEOUT="2s") as server:
            server.submit()
            with psycopg.connect(server_url, autocommit=True) as admin:
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
                assert server.get("/readyz").status == 503
                assert server.get("/healthz").status == 200
                assert server.get("/api/jobs").status == 503
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            wait_for(lambda: server.get("/readyz").status == 200, why="the web process connects again")
            assert len(server.get("/api/jobs").json()["items"]) == 1
            assert "Traceback" not in server.log.read_text()
    finally:
        drop_database(server_url, url)
