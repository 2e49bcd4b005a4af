"""Starting the web process."""

from forgeflow.config import load_config
from forgeflow.log import set_up_logging
from forgeflow.web.wsgi import serve


def run_web(config_file: str | None) -> int:
    """Serve until TERM.  Raises ConfigError, AddressTaken before anything is started."""
    config = load_config(config_file)
    set_up_logging(config.log)
    return serve(config)
