"""The overview in a real browser: found by role and text, quiet under its policy, readable in light and dark."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.databases import drop_database, make_database
from tests.support.web import (
    WebServer,
    empty_tables,
    end_run,
    insert_node,
    make_leader,
    open_database,
    start_run,
    web_server,
)

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
HOSTILE = [
    "<script>document.title='owned'</script>",
    "\"onmouseover=\"document.title='owned'",
    "</td></tr></table><img src=/owned onerror=\"document.title='owned'\">",
    "</title><script>document.title='owned'</script>",
    "<svg/onload=\"document.title='owned'\">",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=/owned'>",
    "<base href=//evil.example>",
    "<iframe srcdoc=\"<script>top.document.title='owned'</script>\"></iframe>",
    "\u202eltr\u2028\u2029",
]

Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def server(server_url: str, template: str) -> Iterator[tuple[WebServer, psycopg.Connection[Any]]]:
    url = make_database(server_url, template=template)
    with web_server(url) as web, open_database(url) as rows:
        yield web, rows
    drop_database(server_url, url)


@pytest.fixture
def rows(server: tuple[WebServer, psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    """The database, empty."""
    empty_tables(server[1])
    return server[1]


@pytest.fixture
def web(server: tuple[WebServer, psycopg.Connection[Any]], rows: psycopg.Connection[Any]) -> WebServer:
    assert rows
    return server[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    missing = [path for path in (CHROMIUM, DRIVER) if not Path(path).exists()]
    if missing:
        reason = f"no {' and no '.join(missing)}; on Debian: apt-get install chromium chromium-driver"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    profile = tempfile.mkdtemp(prefix="forgeflow-browser-")
    options = Options()
    options.binary_location = CHROMIUM
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Browser(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def open_page(browser: Browser, web: WebServer, *, width: int = 1280, scheme: str = "light") -> None:
    """The overview, without its reloading, for a test must not look while the page changes."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get(f"{web.url}/?reload=off")


def complaints(browser: Browser) -> list[str]:
    """What the console says: errors, refused resources and reports of the policy."""
    entries = browser.get_log("browser")  # type: ignore[no-untyped-call] # selenium's own gap
    return [entry["message"] for entry in entries]


def by_role(scope: Browser | WebElement, role: str, name: str) -> WebElement:
    """The only element of this role and accessible name."""
    found = [
        element
        for element in scope.find_elements(By.CSS_SELECTOR, "body *")
        if element.aria_role == role and element.accessible_name == name
    ]
    assert len(found) == 1, f"{len(found)} elements are {role} {name!r}"
    return found[0]


def table_rows(region: WebElement) -> list[list[str]]:
    """The text of each cell, the heads first."""
    return [
        [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
        for row in region.find_elements(By.TAG_NAME, "tr")
    ]


def fill(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    """A bit of everything that the page shows."""
    boot_id = insert_node(rows, "node-a")
    make_leader(rows, boot_id)
    insert_node(rows, "node-b", lease="-5s", workers=0)
    for name, status in (("backup", "succeeded"), ("import", "dead"), ("report", "cancelled")):
        run = web.submit(name=name)["latest_run_id"]
        start_run(rows, run, boot_id)
        error = "exit code 1: the remote end hung up unexpectedly" if status == "dead" else None
        end_run(rows, run, status, error=error)
    start_run(rows, web.submit(name="long work")["latest_run_id"], boot_id)
    web.submit(name="waiting")
    web.submit(name="nightly", cron_expr="0 3 * * *", timezone="Asia/Kolkata")
    web.submit(name="new year", run_at="2099-12-31T23:59:59Z")
    web.submit(name="resting", cron_expr="* * * * *", paused=True)
    web.submit(name="a very long name " * 11)


def test_overview_shows_counts_runs_ticks_and_nodes(
    browser: Browser, web: WebServer, rows: psycopg.Connection[Any]
) -> None:
    fill(web, rows)
    open_page(browser, web)
    assert browser.title == "Overview · ForgeFlow"
    tiles = by_role(browser, "region", "Counts").find_elements(By.TAG_NAME, "li")
    counts = {name: number for number, name in (tile.text.split("\n") for tile in tiles)}
    assert {name.removeprefix("○ ")[-14:]: number for name, number in counts.items()} == {
        "pending runs": "2",
        "running runs": "1",
        "succeeded runs": "1",
        "dead runs": "1",
        "cancelled runs": "1",
        "active jobs": "5",
        "paused jobs": "1",
        "nodes": "1",
    }
    heads, *runs = table_rows(browser.find_element(By.CSS_SELECTOR, "[aria-labelledby=last][tabindex]"))
    assert heads == ["Job", "Status", "Try", "Trigger", "Due", "Started", "Ended", "Node", "Why"]
    assert [(row[0], row[1]) for row in runs[1:]] == [
        ("waiting", "pending"),
        ("long work", "running"),
        ("report", "cancelled"),
        ("import", "dead"),
        ("backup", "succeeded"),
    ]
    assert runs[4][8] == "exit code 1: the remote end hung up unexpectedly"
    ticks = table_rows(browser.find_element(By.CSS_SELECTOR, "[aria-labelledby=next][tabindex]"))
    assert [row[0] for row in ticks] == ["Job", "nightly", "new year"]
    assert ticks[2][1:] == ["2099-12-31 23:59:59", "once", "UTC"]
    nodes = table_rows(browser.find_element(By.CSS_SELECTOR, "[aria-labelledby=nodes][tabindex]"))
    assert [(row[0], row[5]) for row in nodes[1:]] == [("node-a", "alive, leads"), ("node-b", "lost")]
    assert complaints(browser) == []


def test_empty_overview_says_that_nothing_runs(browser: Browser, web: WebServer) -> None:
    open_page(browser, web)
    assert browser.find_element(By.CSS_SELECTOR, "[role=status]").text == (
        "No node is alive: nothing runs until one is started."
    )
    assert "No run yet." in browser.find_element(By.TAG_NAME, "main").text
    assert complaints(browser) == []


def test_hostile_names_are_text_and_do_nothing(browser: Browser, web: WebServer, rows: psycopg.Connection[Any]) -> None:
    for text in HOSTILE:
        insert_node(rows, text)
        end_run(rows, web.submit(name=text)["latest_run_id"], "dead", worker_id=text, error=text)
        web.submit(name=text, cron_expr="0 0 1 1 *")
    open_page(browser, web)
    assert browser.title == "Overview · ForgeFlow"
    assert browser.current_url == f"{web.url}/?reload=off"
    assert not browser.find_elements(By.CSS_SELECTOR, "body :is(script, style, img, svg, iframe, meta, base)")
    shown = browser.find_element(By.TAG_NAME, "main").get_property("textContent")
    assert all(str(shown).count(text) >= 5 for text in HOSTILE)
    assert complaints(browser) == []
    assert "/owned" not in web.log.read_text()


def test_policy_would_report_a_script_in_the_page(browser: Browser, web: WebServer) -> None:
    """So that the empty console of the other tests means something."""
    open_page(browser, web)
    complaints(browser)
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s)"
    )
    assert browser.title == "Overview · ForgeFlow"
    assert any("Content Security Policy" in message for message in complaints(browser))


CONTRAST = """
const light = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
const read = text => text.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
const behind = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = read(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const bad = [];
for (const element of document.querySelectorAll('body *')) {
  if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
  const [a, b] = [luminance(read(getComputedStyle(element).color)), luminance(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) bad.push(`${element.tagName} ${element.className} ${element.textContent.trim()}: ${ratio}`);
}
return bad;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(browser: Browser, web: WebServer, rows: psycopg.Connection[Any], scheme: str) -> None:
    fill(web, rows)
    open_page(browser, web, scheme=scheme)
    dark = browser.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches")
    assert dark is (scheme == "dark")
    assert browser.execute_script(CONTRAST) == []


@pytest.mark.parametrize("width", [400, 1280])
def test_page_is_no_wider_than_its_window(
    browser: Browser, web: WebServer, rows: psycopg.Connection[Any], width: int
) -> None:
    fill(web, rows)
    web.submit(name="x" * 200)
    open_page(browser, web, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    # What is wider scrolls in its own region, which the keyboard reaches.
    for region in browser.find_elements(By.CSS_SELECTOR, ".wide"):
        assert (region.aria_role, region.get_attribute("tabindex")) == ("region", "0")


def test_keyboard_reaches_everything_and_sees_where_it_is(
    browser: Browser, web: WebServer, rows: psycopg.Connection[Any]
) -> None:
    fill(web, rows)
    open_page(browser, web)
    names = []
    for _ in range(4):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        focused = browser.switch_to.active_element
        assert focused.value_of_css_property("outline-style") == "solid"
        names.append(focused.text)
    assert names[:3] == ["Skip to content", "ForgeFlow", "Reload every 5 s"]


def test_reloading_can_be_stopped_and_started(browser: Browser, web: WebServer) -> None:
    browser.get(web.url)
    by_role(browser, "link", "Stop reloading every 5 s").click()
    by_role(browser, "link", "Reload every 5 s").click()
    assert browser.find_elements(By.CSS_SELECTOR, "meta[http-equiv=refresh]")


def test_run_and_job_are_linked(browser: Browser, web: WebServer) -> None:
    run = web.submit(name="hello there")["latest_run_id"]
    open_page(browser, web)
    by_role(browser, "link", "hello there").click()
    assert browser.current_url == f"{web.url}/api/runs/{run}"
