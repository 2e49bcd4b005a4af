"""What Prometheus reads: the state of the fleet, from the database at each scrape.

Nothing is counted in the process, so every web process of every machine gives the same answer.
"""

import platform
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forgeflow import __version__
from forgeflow.errors import StoreError
from forgeflow.service import overview
from forgeflow.web.database import PROBE_SECONDS, connection


class FleetCollector(Collector):
    """One scrape; when the database does not answer, `forgeflow_up` is 0 and the rest is missing."""

    def collect(self) -> Iterable[Metric]:
        build = GaugeMetricFamily("forgeflow_build_info", "Version of this web process", labels=["version", "python"])
        build.add_metric([__version__, platform.python_version()], 1)
        yield build
        try:
            with connection(within_seconds=PROBE_SECONDS) as opened:
                counts, nodes = overview.count_everything(opened), overview.list_nodes(opened)
        except StoreError:
            yield GaugeMetricFamily("forgeflow_up", "Whether the database answers", value=0)
            return
        yield GaugeMetricFamily("forgeflow_up", "Whether the database answers", value=1)
        yield _by_status("forgeflow_runs", "Runs by status", counts.runs)
        yield _by_status("forgeflow_jobs", "Jobs by status", counts.jobs)
        alive = [node for node in nodes if node.is_alive]
        yield GaugeMetricFamily("forgeflow_nodes", "Nodes whose lease is valid", value=len(alive))
        workers = GaugeMetricFamily("forgeflow_workers", "Worker processes by what they do", labels=["state"])
        workers.add_metric(["busy"], sum(node.running for node in alive))
        workers.add_metric(["idle"], sum(max(0, node.workers - node.running) for node in alive))
        yield workers
        leader = GaugeMetricFamily("forgeflow_leader", "1 for the node that leads", labels=["node"])
        for node in alive:
            leader.add_metric([node.worker_id], float(node.is_leader))
        yield leader


def _by_status(name: str, text: str, counts: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["status"])
    for status, count in counts.items():
        family.add_metric([status], count)
    return family
