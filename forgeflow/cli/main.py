"""`forgeflow`: the command and its subcommands; each imports what it needs when it runs."""

import signal
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import click

from forgeflow import __version__

_CONFIG = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration file; default $FORGEFLOW_CONFIG, ./conf/forgeflow.ini, /etc/forgeflow/forgeflow.ini.",
)


Command = TypeVar("Command", bound=Callable[..., None])

_VERSION = click.version_option(__version__, message="%(prog)s %(version)s")
# Not only the group: forgeflow-master and forgeflow-web are commands of their own.
_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=_SETTINGS)
@_VERSION
def cli() -> None:
    """Cron and background jobs for more than one machine, on PostgreSQL.

    Exit codes: 0 done, 1 failed, 2 usage, 3 not found, or a node that cannot boot, 4 conflict or schema
    mismatch, 69 database unreachable, 75 address or folder in use, 78 configuration invalid, 130 interrupted.
    """


@cli.command(short_help="Run everything on this machine.")
@_CONFIG
@click.option("--listen", metavar="HOST:PORT", help="Where the API listens; default server.listen, 127.0.0.1:8080.")
@click.option(
    "--data-dir",
    metavar="DIR",
    envvar="FORGEFLOW_DATA_DIR",
    help="State folder of the embedded server; default /var/lib/forgeflow as root, $XDG_STATE_HOME/forgeflow else.",
)
def up(config_file: str | None, listen: str | None, data_dir: str | None) -> None:
    """Run everything on this machine: database, node, API and dashboard.

    Starts an embedded PostgreSQL unless FORGEFLOW_DATABASE_URL or [database] url names a server, migrates, and
    serves until Ctrl-C or TERM; then running jobs may finish (worker.drain_timeout), and PostgreSQL stops last. A
    second Ctrl-C, or QUIT, stops running jobs and hands them back. What dies meanwhile is started again.
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.up import run_up

    exit_with(lambda: run_up(config_file, listen=listen, data_dir=data_dir))


@cli.command(context_settings=_SETTINGS, short_help="Run a node: scheduler and workers.")
@_CONFIG
@_VERSION
def master(config_file: str | None) -> None:
    """Run a node: what server.roles says, scheduler and workers.

    TERM or INT lets running jobs finish; QUIT or a second INT stops them and hands them back. HUP reads the
    configuration anew. USR2 writes the table of children to the log. The database must be migrated before:
    `forgeflow migrate`.
    """
    # A reload that is asked for while we still import must not end us; the master takes HUP over when it can.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.serve import run_master

    exit_with(lambda: run_master(config_file))


@cli.command(context_settings=_SETTINGS, short_help="Serve API, dashboard and metrics.")
@_CONFIG
@_VERSION
def web(config_file: str | None) -> None:
    """Serve REST API, dashboard and metrics on server.listen, until TERM or INT.

    Starts without its database, too; /readyz then says what is wrong.
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.web import run_web

    exit_with(lambda: run_web(config_file))


@cli.command(short_help="Bring the schema to this version.")
@_CONFIG
def migrate(config_file: str | None) -> None:
    """Bring the database's schema to this version; safe to run twice, and on several machines at once."""
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.serve import run_migrate

    exit_with(lambda: run_migrate(config_file))


_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")


@cli.command("check-config", short_help="Check the configuration, and say where it comes from.")
@_CONFIG
@_JSON
def check_config(config_file: str | None, as_json: bool) -> None:
    """Check the configuration as a node would, and say where it comes from.

    Prints the file, what in it differs from the defaults, and the variables of the environment; passwords are
    never shown. No database is touched, and no module of python.modules is imported. Exit codes: 0 a node would
    accept it, 78 refused, with a line on stderr for each wrong key.

    \b
    Example:
      forgeflow check-config --config /etc/forgeflow/forgeflow.ini
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.operate import run_check_config

    exit_with(lambda: run_check_config(config_file, as_json=as_json))


@cli.command(short_help="Say what is wrong around a node, and the cure.")
@_CONFIG
@_JSON
def doctor(config_file: str | None, as_json: bool) -> None:
    """Say what is wrong around a node: a line for each check, and the cure for each that is not ok.

    Looks at the configuration, the database and its settings, the schema, clocks, connections, the fleet, and the
    limits of this machine. Changes nothing, and ends within half a minute whatever hangs. Limits are those that the
    command itself runs under: run it as the node's user, best in its unit or container.

    Exit codes: 0 nothing failed, 1 something failed, 69 the database is unreachable, 78 the configuration is invalid.

    \b
    Example:
      forgeflow doctor
      forgeflow doctor --json | jq '.checks[] | select(.verdict != "ok")'
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.operate import run_doctor

    exit_with(lambda: run_doctor(config_file, as_json=as_json))


@cli.command(short_help="Say whether a node lives, for health checks.")
@_CONFIG
@_JSON
@click.option("--node", metavar="NAME", help="The node's name; default worker.id, without one any node on this host.")
@click.option("--timeout", metavar="DURATION", default="5s", show_default=True, help="How long to wait at most.")
def ping(config_file: str | None, as_json: bool, node: str | None, timeout: str) -> None:
    """Say whether a node lives: whether it has a lease that has not passed.

    Exit codes: 0 it lives, 1 it does not, 2 wrong usage, 4 the database is not migrated, 69 the database is
    unreachable, 78 the configuration is invalid.

    \b
    Example, for a container:
      HEALTHCHECK CMD ["forgeflow", "ping", "--timeout", "3s"]
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.ping import run_ping

    exit_with(lambda: run_ping(config_file, node=node, timeout=timeout, as_json=as_json))


@cli.command("next", short_help="Show when a schedule, or a job, runs next.")
@click.argument("arguments", nargs=-1, metavar='JOB | "EXPR"')
@_CONFIG
@click.option("--tz", "zone", metavar="ZONE", help="IANA zone of EXPR; default UTC.")
@click.option("--count", metavar="N", default="10", show_default=True, help="How many times to show, 1 to 100.")
@click.option(
    "--after", metavar="INSTANT", help="Of EXPR show those after it, such as 2027-03-27T12:00:00Z; default now."
)
@_JSON
def next_(
    arguments: tuple[str, ...],
    config_file: str | None,
    zone: str | None,
    count: str,
    after: str | None,
    as_json: bool,
) -> None:
    """Show when a schedule, or a job, runs next, in its zone and in UTC, and in words.

    Says what changes of the clock do to it, and warns of what may surprise. --json prints what
    POST /api/schedule/preview answers, for a job what GET /api/jobs/ID/next does.

    EXPR has five fields, or six with the second first, or is an alias such as @daily; it needs neither database nor
    configuration. A word without @ is a JOB: its name, its id, or how its id begins, four characters at least. Of a
    job the window, a pause and ticks taken out are heeded.

    Exit codes: 0 shown, 2 refused or more than one such job, 3 no such job, 4 the database is not migrated, 69 the
    database is unreachable, 78 the configuration is invalid.

    \b
    Example:
      forgeflow next "30 2 * * *" --tz Europe/Berlin --count 3
      forgeflow next nightly
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.next import run_next

    exit_with(
        lambda: run_next(arguments, config_file=config_file, zone=zone, count=count, after=after, as_json=as_json)
    )


@cli.command(short_help="Say why a job did, or did not, run at a time.")
@click.argument("job")
@click.argument("at")
@_CONFIG
@_JSON
def explain(job: str, at: str, config_file: str | None, as_json: bool) -> None:
    """Say why a job did, or did not, run at a time.

    Prints the outcome of that tick and a sentence, the time on the job's clock and in UTC, its run, and the stretch of
    ticks that shared its fate. --json prints what GET /api/jobs/ID/explain answers.

    JOB is a name, an id, or how an id begins, four characters at least. AT is a time such as 2026-10-25T00:30:00Z, or
    without Z or an offset what the job's own clock shows.

    Exit codes: 0 explained, 2 no such time or more than one such job, 3 no such job, 4 the database is not migrated,
    69 the database is unreachable, 78 the configuration is invalid.

    \b
    Example:
      forgeflow explain nightly "2026-10-25 02:30"
      forgeflow explain nightly 2026-10-25T00:30:00Z --json | jq -r .outcome
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.explain import run_explain

    exit_with(lambda: run_explain(config_file, job, at, as_json=as_json))


def _selecting(statuses: Sequence[str]) -> Callable[[Command], Command]:
    """The options of a command that changes runs: which ones, and how it goes about it."""
    options = [
        click.argument("run_ids", metavar="[RUNS]", nargs=-1),
        _CONFIG,
        click.option("--job", metavar="JOB", help="Runs of this job: its name, its id, or how its id begins."),
        click.option("--status", type=click.Choice(statuses), help="Runs that have this status."),
        click.option("--since", metavar="WHEN", help="Runs scheduled for then or later: 2h (ago), or a time."),
        click.option("--until", metavar="WHEN", help="Runs scheduled for then or earlier."),
        click.option("--dry-run", "is_dry", is_flag=True, help="Only say how many runs it would be."),
        click.option("--yes", "is_sure", is_flag=True, help="Do not ask before many runs are changed."),
        _JSON,
    ]
    return lambda command: reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@cli.command(short_help="Run again what has ended, one run or many.")
@_selecting(["dead", "succeeded", "cancelled"])
def retry(config_file: str | None, **asked: Any) -> None:
    """Run again what has ended: a new run for each, due now, that does what the other one was to do.

    RUNS are whole ids. Without any, options say which runs are meant, dead ones unless --status says otherwise, and of
    them those that no other run has retried; you are asked before anything is changed. 10,000 runs at most.

    Exit codes: 0 all done, 1 some were skipped, each with a line that says why, or you said no, 2 wrong usage, 3 no
    such run or job, 4 it has not ended, or its job or another run is in the way, or the database is not migrated,
    69 the database is unreachable, 78 the configuration is invalid.

    \b
    Example:
      forgeflow retry --job nightly --since 24h --dry-run
      forgeflow retry --status dead --since 2026-07-01T02:00:00Z --yes
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.runs import Asked, change

    exit_with(lambda: change(config_file, Asked("retry", **asked)))


@cli.command(short_help="Cancel runs that wait, stop those that are running.")
@_selecting(["pending", "running"])
def cancel(config_file: str | None, **asked: Any) -> None:
    """Cancel runs that wait, and stop those that are running: TERM, worker.kill_grace, KILL. Their jobs go on.

    RUNS are whole ids. Without any, options say which runs are meant, pending and running ones unless --status says
    otherwise; you are asked before anything is changed. 10,000 runs at most.

    Exit codes: 0 all done, 1 some were skipped, each with a line that says why, or you said no, 2 wrong usage, 3 no
    such run or job, 4 the run has ended, or the database is not migrated, 69 the database is unreachable, 78 the
    configuration is invalid.

    \b
    Example:
      forgeflow cancel --job nightly --dry-run
      forgeflow cancel --job nightly --status pending --yes
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.runs import Asked, change

    exit_with(lambda: change(config_file, Asked("cancel", **asked)))


@cli.command(short_help="Print what a run prints, or has printed.")
@click.argument("run")
@_CONFIG
@_JSON
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended, through its retries.")
def output(run: str, config_file: str | None, as_json: bool, follow: bool) -> None:
    """Print what a run prints, or has printed: of its latest attempt.

    Of a run that goes on, it is what has been seen of it so far: each second a piece, of a run that lasts longer than
    that. Of one that has ended, both ends are kept (executor.shell.output_limit). RUN is its id. --json prints what
    GET /api/runs/ID/output answers.

    Exit codes: 0 printed, whatever became of the run, 2 no id, 3 no such run, 4 the database is not migrated, 69 the
    database is unreachable, 78 the configuration is invalid.

    \b
    Example:
      forgeflow output 019b7e3a-5c1d-7e2f-8a4b-0c9d8e7f6a5b --follow
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.output import run_output

    exit_with(lambda: run_output(config_file, run, follow=follow, as_json=as_json))


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


def main() -> None:
    cli(prog_name="forgeflow")


def master_main() -> None:
    """`forgeflow-master`."""
    master(prog_name="forgeflow-master")


def web_main() -> None:
    """`forgeflow-web`."""
    web(prog_name="forgeflow-web")
