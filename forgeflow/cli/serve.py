"""Starting a node, or a migration, in this process; imports nothing of the web, for the children inherit it all."""

import os
import socket
import uuid

import click

from forgeflow import __version__
from forgeflow.cli.node import check_node
from forgeflow.config import Config, load_config
from forgeflow.domain.node import Node
from forgeflow.log import set_up_logging
from forgeflow.master.loop import Master
from forgeflow.process.service_manager import ServiceManager
from forgeflow.process.tree import machine
from forgeflow.store.connection import connect
from forgeflow.store.schema import migrate


def run_master(config_file: str | None) -> int:
    """Be the master of a node until told to stop.  Raises ConfigError before anything is started."""
    manager = ServiceManager.from_environment(os.environ)
    config = _load(config_file)
    manager.check(config.worker)
    set_up_logging(config.log)
    node = Node(
        boot_id=uuid.uuid4(),
        worker_id=config.worker_id(),
        hostname=socket.gethostname(),
        machine=machine(),
        pid=os.getpid(),
        roles=config.server.roles,
        concurrency=config.worker.concurrency,
        version=__version__,
    )
    return Master(config, node, lambda: _load(config_file), manager).run()


def _load(config_file: str | None) -> Config:
    """A node's configuration, at the start and at each reload.  Raises ConfigError."""
    config = load_config(config_file)
    check_node(config)
    return config


def run_migrate(config_file: str | None) -> int:
    config = load_config(config_file)
    set_up_logging(config.log)
    connection = connect(config, "migrate")
    try:
        done = migrate(connection, config)
    finally:
        connection.close()
    for migration in done:
        click.echo(f"applied {migration.version:04}_{migration.name}")
    click.echo(f"schema {config.database.schema_name} is current")
    return 0
