"""A scheduler's life: campaign, lead, resign."""

import random
import select
import time

import structlog

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.errors import ConfigError, SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.process.clock import boottime
from forgeflow.process.fork import EXIT_BOOT_FAILED, EXIT_REFUSED, EXIT_TRY_AGAIN
from forgeflow.process.link import Link
from forgeflow.scheduler import ticks
from forgeflow.scheduler.leader import Leadership, campaign, open_session, resign
from forgeflow.scheduler.sweep import sweep_orphans, sweep_output
from forgeflow.scheduler.zones import Recomputation, begin_recomputation, read_version
from forgeflow.store.connection import Connection
from forgeflow.store.listener import take_notifications

log = structlog.get_logger()

_SWEEP_SECONDS = 60.0
_GO_ON_SECONDS = 0.05


class Scheduler:
    """One session, a standby's or the leader's."""

    def __init__(self, link: Link, config: Config, node: Node) -> None:
        self._link = link
        self._config = config
        self._node = node
        self._connection: Connection | None = None
        self._leadership: Leadership | None = None
        self._passes: ticks.TickPasses | None = None
        self._zone_version = read_version()
        self._recomputation: Recomputation | None = None
        self._sweep_at = self._sweep_output_at = self._go_on_at = 0.0
        self._is_cut_off = False
        self.is_stopped = False

    def run_pass(self) -> None:
        """Campaign or lead for one pass, then wait for the next or for what comes first.

        Trouble with the database ends the session and with it the leadership.  Raises SchemaMismatch, ConfigError.
        """
        self._say_alive()
        try:
            if self._connection is None:
                self._connection = open_session(self._config, self._node)
                if self._is_cut_off:
                    log.info("scheduler has the database again")
                self._is_cut_off = False
                self._link.send("READY")
            if self._leadership is None:
                self._campaign(self._connection)
            if self._leadership and self._passes:
                self._lead(self._leadership, self._passes)
                self._wait(0.0 if self._is_busy() else self._until_next_pass(self._passes.quiet_seconds))
            else:
                self._wait(self._config.scheduler.campaign_interval)
        except StoreUnavailable as error:
            if not self._is_cut_off:
                was_leader = self._leadership is not None
                log.warning("scheduler has no database", reason=str(error), was_leader=was_leader)
            self._is_cut_off = True
            self._close()
            self._wait(random.uniform(0.1, 1.0))

    def _say_alive(self) -> None:
        self._link.send("STATE", state="pass", budget=self._pass_seconds())

    def _pass_seconds(self) -> float:
        """A few statements with their deadlines, maybe a connection, and the wait after the pass."""
        config = self._config
        wait = max(config.scheduler.campaign_interval, 2 * config.scheduler.tick)
        return wait + 4 * (config.worker.statement_deadline + config.database.connect_timeout)

    def _campaign(self, connection: Connection) -> None:
        self._leadership = campaign(connection, self._config, self._node)
        if self._leadership:
            term = self._leadership.term
            self._passes = ticks.TickPasses(connection, self._config, term, self._go_on)
            self._say_alive()
            self._recomputation = begin_recomputation(
                connection, version=self._zone_version, term=term, go_on=self._go_on
            )

    def _lead(self, leadership: Leadership, passes: ticks.TickPasses) -> None:
        passes.run_pass()
        if self._recomputation and self._go_on() and self._recomputation.run_batch():
            self._recomputation = None
        if boottime() >= self._sweep_at:
            self._say_alive()
            sweep_orphans(leadership.connection, self._config)
            self._sweep_at = boottime() + _SWEEP_SECONDS
        elif boottime() >= self._sweep_output_at:
            # A part in each pass: ticks do not wait for all of it.
            has_more = sweep_output(leadership.connection)
            self._sweep_output_at = boottime() + (0.0 if has_more else _SWEEP_SECONDS)

    def _go_on(self) -> bool:
        """Say that we are alive, and hear whether we are to stop; asked for each tick, done now and then."""
        if boottime() >= self._go_on_at:
            self._go_on_at = boottime() + _GO_ON_SECONDS
            self._say_alive()
            self._wait(0.0)
        return not self.is_stopped

    def _is_busy(self) -> bool:
        """Whether the next pass is not to wait for its time."""
        return self.is_stopped or (self._recomputation is not None and not self._recomputation.is_waiting)

    def _until_next_pass(self, quiet_seconds: float) -> float:
        """Passes keep step with the wall clock, so that a tick on a whole second is late by milliseconds only.

        Every other one is left out while nothing is due: what was announced meanwhile ends the wait.
        """
        tick = self._config.scheduler.tick
        seconds = tick - time.time() % tick + 0.002
        return seconds + tick if quiet_seconds > seconds + tick else seconds

    def _wait(self, seconds: float) -> None:
        """Until the time is over, STOP came, or something was announced: a resignation, or a job's new clock."""
        poll = select.poll()
        poll.register(self._link.fileno(), select.POLLIN)
        if self._connection:
            poll.register(self._connection.fileno(), select.POLLIN)
        ready = dict(poll.poll(seconds * 1000))
        if self._link.fileno() in ready:
            stopped = any(message["kind"] == "STOP" for message in self._link.receive())
            self.is_stopped = self.is_stopped or stopped or self._link.is_closed
        elif ready and self._connection:
            take_notifications(self._connection)

    def _close(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = self._leadership = self._passes = self._recomputation = None

    def stop(self) -> None:
        """Give up leadership at once."""
        if self._leadership:
            resign(self._leadership)
        self._close()


def main(link: Link, config: Config, node: Node) -> int:
    """The scheduler's life.  Returns its exit code: 0 told to stop, 3 the schema does not fit, 75 to be tried again."""
    scheduler = Scheduler(link, config, node)
    try:
        while not scheduler.is_stopped:
            scheduler.run_pass()
        scheduler.stop()
    except SchemaMismatch as error:
        log.error("scheduler cannot boot", reason=str(error))
        return EXIT_BOOT_FAILED
    except ConfigError as error:
        log.error("scheduler is refused", reason=str(error))
        return EXIT_REFUSED
    except StoreError as error:
        log.error("scheduler starts again", reason=str(error))
        return EXIT_TRY_AGAIN
    return 0
