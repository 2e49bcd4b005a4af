"""`forgeflow explain`: what became of one tick of a job, and why."""

from collections.abc import Iterator
from datetime import datetime

from forgeflow.cli.job import ask_about_job
from forgeflow.cli.say import say, say_document
from forgeflow.cli.times import local_text, reading_text
from forgeflow.service.explain import Explanation, explain_tick
from forgeflow.store.runs import RunRow
from forgeflow.store.ticks import Gap


def run_explain(config_file: str | None, job: str, at: str, *, as_json: bool) -> int:
    """Say why the job did, or did not, run then.  Raises as `ask_about_job`, and InvalidInput for what is no time."""
    seen = ask_about_job(config_file, job, lambda connection, job_id: explain_tick(connection, job_id, at))
    if as_json:
        from forgeflow.web.api.documents import explanation_document

        say_document(explanation_document(seen))
        return 0
    for line in _lines(seen):
        say(line)
    return 0


def _lines(seen: Explanation) -> Iterator[str]:
    yield f"{_heading(seen)}  {seen.reason}"
    yield f"job   {seen.job.name} {seen.job.id}"
    yield f"time  {_time(seen)}"
    yield from (f"note  {note}" for note in seen.notes)
    if seen.run:
        yield f"run   {_run(seen.run)}"
    if seen.gap:
        yield f"gap   {_gap(seen.gap, seen.job.paused_until)}"


def _heading(seen: Explanation) -> str:
    """What is asked most: how its run fared, where there is one."""
    words = _words(seen.outcome).upper()
    if not seen.run:
        return words
    ended = _words(seen.run.outcome or seen.run.status).upper()
    return ended if words == "RAN" else f"{words}, {ended}"


def _time(seen: Explanation) -> str:
    """On the job's clock and in UTC, or once where the two are the same."""
    utc = f"{reading_text(seen.at)} UTC"
    zone = str(seen.local.tzinfo)
    return utc if zone == "UTC" else f"{local_text(seen.local)} {zone}, {utc}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _run(run: RunRow) -> str:
    """Its status, how it ended where that is more, and with which code."""
    facts: list[str] = [run.status]
    if run.outcome and run.outcome != run.status:
        facts.append(_words(run.outcome))
    for name, code in (("exit code", run.exit_code), ("signal", run.signal), ("HTTP status", run.http_status)):
        if code is not None:
            facts.append(f"{name} {code}")
    return f"{run.id} {', '.join(facts)}"


def _gap(gap: Gap, paused_until: datetime | None) -> str:
    """From its first tick to its last; a pause that goes on is until its end, if it has one."""
    start = f"from {reading_text(gap.from_at, 'seconds')} UTC"
    if gap.to_at:
        return f"{start} to {reading_text(gap.to_at, 'seconds')} UTC"
    return f"{start} until {reading_text(paused_until, 'seconds')} UTC" if paused_until else f"{start} on"
