"""What a node asks of its configuration, beyond what every process does."""

from forgeflow.config import Config
from forgeflow.errors import ConfigError
from forgeflow.store.connection import required_url


def check_node(config: Config) -> None:
    """Raises ConfigError with every reason why a node does not start with this, in sentences that say what to do."""
    problems: list[str] = []
    try:
        required_url(config)
    except ConfigError as error:
        problems += error.problems
    if "api" in config.server.roles:
        problems.append("server.roles has api, which is forgeflow-web's; expected scheduler, worker or both")
    if problems:
        raise ConfigError("; ".join(problems), problems)
