"""`forgeflow`: the command and its subcommands; each imports what it needs when it runs."""

import click

from forgeflow import __version__

_CONFIG = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration file; default $FORGEFLOW_CONFIG, ./conf/forgeflow.ini, /etc/forgeflow/forgeflow.ini.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="forgeflow")
def cli() -> None:
    """Cron and background jobs for more than one machine, on PostgreSQL.

    Exit codes: 0 done, 1 failed, 2 usage, 3 not found or a node that cannot boot, 4 conflict or schema mismatch,
    69 database unreachable, 75 try again later, 78 configuration invalid.
    """


@cli.command()
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
    second Ctrl-C stops running jobs and hands them back.
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.up import run_up

    exit_with(lambda: run_up(config_file, listen=listen, data_dir=data_dir))


@cli.command()
@_CONFIG
def master(config_file: str | None) -> None:
    """Run a node: the roles of server.roles, until TERM (drain), INT twice or QUIT (stop jobs, hand them back).

    USR2 writes the table of children to the log. The database must be migrated before: `forgeflow migrate`.
    """
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.serve import run_master

    exit_with(lambda: run_master(config_file))


@cli.command()
@_CONFIG
def web(config_file: str | None) -> None:
    """Serve REST API, dashboard and metrics on server.listen until TERM."""
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.web import run_web

    exit_with(lambda: run_web(config_file))


@cli.command()
@_CONFIG
def migrate(config_file: str | None) -> None:
    """Bring the database's schema to this version; safe to run twice, and on several machines at once."""
    from forgeflow.cli.exits import exit_with
    from forgeflow.cli.serve import run_migrate

    exit_with(lambda: run_migrate(config_file))


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
