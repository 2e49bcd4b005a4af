"""ForgeFlow: cron and background jobs for more than one machine, on PostgreSQL.

The package's floors, lowest first (an import never goes up; `make check` proves it):
errors, domain, config, log, process, store + embedded, executors, service, courier + worker + scheduler,
master + web, cli.
"""

__version__ = "0.1.0"
