"""ForgeFlow: cron and background jobs for more than one machine, on PostgreSQL.

The package's floors, lowest first (an import never goes up; `make check` proves it):
errors, domain, config, log, process, store + embedded, functions, executors, service, courier + worker + scheduler,
master + web, cli.

What users import is handed out by name, when it is asked for: `import forgeflow` alone loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forgeflow.functions.registry import job

__all__ = ["__version__", "job"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "job":
        from forgeflow.functions.registry import job

        return job
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
