"""The overview page as HTML: what it shows, and that what users wrote stays text."""

import re
from html.parser import HTMLParser
from typing import Any

import psycopg
import pytest

from tests.support.web import WebServer, end_run, insert_node, make_leader, start_run

HOSTILE = [
    "<script>alert(1)</script>",
    '"onmouseover="alert(1)',
    "'onmouseover='alert(1)",
    "</td></tr></table><img src=x onerror=alert(1)>",
    "</title><script>alert(1)</script>",
    "<!--",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "a\nb\x1b[31m\u2028\u202ec",
    "<svg/onload=alert(1)>",
]


class Outline(HTMLParser):
    """The elements, their attributes, and the text of each cell and heading."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("th", "td", "h1", "h2", "li", "p"):
            self.texts.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td", "h1", "h2", "li", "p"):
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_page_shows_counts_runs_and_next_ticks(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    boot_id = insert_node(rows, "node-a")
    make_leader(rows, boot_id)
    running, dead = web.submit(name="running job"), web.submit(name="dead job")
    web.submit(name="pending job")
    start_run(rows, running["latest_run_id"], boot_id)
    end_run(rows, dead["latest_run_id"], "dead", error="exit code 1")
    web.submit(name="nightly", cron_expr="0 3 * * *", timezone="Asia/Kolkata")
    web.submit(name="once only", run_at="2099-12-31T23:59:59Z")
    answer = web.get("/")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    page = Outline(answer.text)
    texts = [text.strip() for text in page.texts]
    for expected in ("1 pending runs", "1 running runs", "1 dead runs", "0 succeeded runs", "4 active jobs", "1 nodes"):
        assert expected in texts
    for expected in ("running job", "dead job", "pending job", "exit code 1", "3 of 3", "node-a", "alive, leads"):
        assert expected in texts
    ticks = texts[texts.index("Next ticks") :]
    assert ticks.index("nightly") < ticks.index("once only")
    assert {"0 3 * * *", "Asia/Kolkata", "once", "2099-12-31 23:59:59"} <= set(ticks)


def test_page_says_how_a_dead_run_ended(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    end_run(rows, web.submit()["latest_run_id"], "dead", error_type="timed_out")
    assert "dead, timed out" in [text.strip() for text in Outline(web.get("/").text).texts]


def test_empty_page_says_what_to_do(web: WebServer) -> None:
    texts = Outline(web.get("/").text).texts
    assert "No node is alive: nothing runs until one is started." in texts
    assert {"No job is waiting for a tick.", "No node has reported."} <= set(texts)


def test_page_without_a_leader_says_so(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    insert_node(rows, "node-a")
    assert "No node leads: schedules do not fire until one does." in Outline(web.get("/").text).texts


@pytest.mark.parametrize("text", HOSTILE)
def test_what_users_wrote_stays_text(web: WebServer, rows: psycopg.Connection[Any], text: str) -> None:
    insert_node(rows, text)
    plain = Outline(web.get("/").text).tags
    run = web.submit(name=text)["latest_run_id"]
    end_run(rows, run, "dead", worker_id=text, error=text)
    web.submit(name=text, cron_expr="0 0 1 1 *")
    page = Outline(web.get("/").text)
    assert [cell.strip() for cell in page.texts].count(text) == 8  # job, node and reason, twice; tick; node
    assert {tag for tag, _ in page.tags} - {tag for tag, _ in plain} <= {
        "section",
        "h2",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "div",
        "a",
        "code",
    }
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert {link["href"] for link in page.all("a")} <= {"#main", "/", "?reload=off"} | {
        link["href"]
        for link in page.all("a")
        if re.fullmatch(r"/api/(jobs|runs)/[0-9a-f-]{36}|/api/runs\?status=[a-z]+", str(link["href"]))
    }


def test_page_is_marked_up_for_everybody(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    insert_node(rows, "node-a")
    web.submit()
    web.submit(cron_expr="* * * * *")
    text = web.get("/").text
    page = Outline(text)
    assert page.all("html") == [{"lang": "en"}]
    assert "<title>Overview · ForgeFlow</title>" in text
    assert [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2", "h2", "h2", "h2"]
    assert len(page.all("table")) == 3
    assert {cell.get("scope") for cell in page.all("th")} == {"col", "row"}
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert {a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a} <= set(names)
    assert not page.all("script") + page.all("style")
    assert not [attributes for _, attributes in page.tags if "style" in attributes]


def test_reloading_can_be_stopped(web: WebServer) -> None:
    assert 'http-equiv="refresh"' in web.get("/").text
    page = web.get("/?reload=off").text
    assert 'http-equiv="refresh"' not in page
    assert "Reload every 5 s" in page
