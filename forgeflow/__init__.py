"""ForgeFlow: cron and background jobs for more than one machine, on PostgreSQL.

The package's floors, lowest first (an import never goes up; `make check` proves it):
duration, errors, domain, config, log, process, store + embedded, functions, executors, service,
courier + worker + scheduler, master + web, cli, testing.

What users import is handed out by name, when it is asked for: `import forgeflow` alone loads nothing else.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forgeflow.errors import Cancel, ForgeError, MissingEnvError, PermissionDenied, Retry
    from forgeflow.functions.auth import AuthContext
    from forgeflow.functions.context import CronContext
    from forgeflow.functions.decorators import cron, job
    from forgeflow.functions.log import CronLog, LogEntry
    from forgeflow.functions.spec import FunctionSpec, spec_of

__all__ = [
    "AuthContext",
    "Cancel",
    "CronContext",
    "CronLog",
    "ForgeError",
    "FunctionSpec",
    "LogEntry",
    "MissingEnvError",
    "PermissionDenied",
    "Retry",
    "__version__",
    "cron",
    "job",
    "spec_of",
]

__version__ = "0.1.0"

_MODULES = {
    "AuthContext": "forgeflow.functions.auth",
    "Cancel": "forgeflow.errors",
    "CronContext": "forgeflow.functions.context",
    "CronLog": "forgeflow.functions.log",
    "ForgeError": "forgeflow.errors",
    "FunctionSpec": "forgeflow.functions.spec",
    "LogEntry": "forgeflow.functions.log",
    "MissingEnvError": "forgeflow.errors",
    "PermissionDenied": "forgeflow.errors",
    "Retry": "forgeflow.errors",
    "cron": "forgeflow.functions.decorators",
    "job": "forgeflow.functions.decorators",
    "spec_of": "forgeflow.functions.spec",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value
