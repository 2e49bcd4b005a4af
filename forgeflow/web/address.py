"""The address to listen on: whether it may be, and whether it is to be had.  Light, for `forgeflow up` asks first."""

import errno
import ipaddress
import socket

from forgeflow.config import Config
from forgeflow.errors import AddressTaken, ConfigError


def check_address(config: Config) -> None:
    """Refuse to be reached from other machines without meaning it, or to share an address.

    Raises ConfigError, or AddressTaken when it is only a matter of time; both say what to do.
    """
    host, port = config.server.address()
    if config.auth.mode == "auto" and not _is_loopback(host):
        raise ConfigError(
            f"server.listen is {config.server.listen}, which other machines reach, and whoever reaches the API runs "
            "commands: listen on 127.0.0.1, or set auth.mode = off (FORGEFLOW_AUTH_MODE=off) on purpose"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressTaken(
                    f"{config.server.listen} is taken: stop the other program or choose another address, "
                    "FORGEFLOW_LISTEN_ADDR=127.0.0.1:8081 (`make run PORT=8081`)"
                ) from error
            raise ConfigError(
                f"server.listen is {config.server.listen}, where this machine cannot listen ({error.strerror}): "
                "expected a free port above 1023 and an address of this machine"
            ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
