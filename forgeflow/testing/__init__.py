"""For the tests of our users: contexts, a client that answers what a test says, databases, a pytest plugin.

The top floor: nothing of ForgeFlow imports it. Names are handed out when they are asked for, so that the plugin, which
pytest loads wherever ForgeFlow is installed, costs nobody the import of an HTTP client.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forgeflow.functions.log import LogEntry
    from forgeflow.testing.context import RecordingLog, TestCronContext, TestCronContextBuilder, run_cron
    from forgeflow.testing.http import MockHttpClient, UnmockedRequest

__all__ = [
    "LogEntry",
    "MockHttpClient",
    "RecordingLog",
    "TestCronContext",
    "TestCronContextBuilder",
    "UnmockedRequest",
    "run_cron",
]

_MODULES = {
    "LogEntry": "forgeflow.functions.log",
    "MockHttpClient": "forgeflow.testing.http",
    "RecordingLog": "forgeflow.testing.context",
    "TestCronContext": "forgeflow.testing.context",
    "TestCronContextBuilder": "forgeflow.testing.context",
    "UnmockedRequest": "forgeflow.testing.http",
    "run_cron": "forgeflow.testing.context",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value
