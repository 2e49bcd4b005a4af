"""/api/stats, /api/nodes, /healthz, /readyz, /metrics"""

from flask import Blueprint, Response, jsonify, request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from forgeflow.errors import StoreError
from forgeflow.service import overview
from forgeflow.web.api.documents import counts_document, node_document
from forgeflow.web.api.queries import no_parameters
from forgeflow.web.database import PROBE_SECONDS, connection
from forgeflow.web.metrics import FleetCollector

blueprint = Blueprint("system", __name__)


@blueprint.get("/api/stats")
def stats() -> Response:
    no_parameters()
    with connection() as opened:
        return jsonify(counts_document(overview.count_everything(opened)))


@blueprint.get("/api/nodes")
def nodes() -> Response:
    no_parameters()
    with connection() as opened:
        return jsonify(items=[node_document(node) for node in overview.list_nodes(opened)])


@blueprint.get("/healthz")
def health() -> Response:
    """This process answers; says nothing of the database."""
    return jsonify(status="ok")


@blueprint.get("/readyz")
def readiness() -> Response:
    """Whether requests can be served: the database answers and has this version's schema."""
    try:
        with connection(within_seconds=PROBE_SECONDS) as opened:
            overview.check_ready(opened)
    except StoreError as error:
        response = jsonify(status="unavailable", reasons=[str(error)])
        response.status_code = 503
        return response
    return jsonify(status="ok")


@blueprint.get("/metrics")
def metrics() -> Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector())
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(registry), content_type=content_type)
