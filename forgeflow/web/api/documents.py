"""Rows as the API shows them: snake_case, times in UTC with Z."""

from datetime import datetime
from typing import Any

from forgeflow.domain.preview import Fire, Preview
from forgeflow.service.explain import Explanation
from forgeflow.service.output import OutputPart, stored_text
from forgeflow.service.overview import Counts
from forgeflow.service.runs import RunDetail
from forgeflow.service.selection import BulkResult
from forgeflow.service.upcoming import Upcoming, describe_job
from forgeflow.store.jobs import JobRow
from forgeflow.store.nodes import NodeRow
from forgeflow.store.runs import AttemptRow, RunRow

Document = dict[str, Any]


def time_text(instant: datetime | None) -> str | None:
    """RFC 3339 in UTC."""
    return None if instant is None else instant.isoformat().replace("+00:00", "Z")


def job_document(job: JobRow) -> Document:
    last_run = None
    if job.last_run_id:
        last_run = {
            "id": str(job.last_run_id),
            "status": job.last_run_status,
            "finished_at": time_text(job.last_run_finished_at),
        }
    return {
        "id": str(job.id),
        "name": job.name,
        "description": job.description,
        "tags": job.tags,
        "executor": job.executor,
        "payload": job.payload,
        "cron_expr": job.cron_expr,
        "run_at": time_text(job.run_at),
        "timezone": job.timezone,
        "schedule_text": describe_job(job),
        "start_at": time_text(job.start_at),
        "end_at": time_text(job.end_at),
        "jitter_seconds": job.jitter_seconds,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout_seconds": job.timeout_seconds,
        "catch_up": job.catch_up,
        "catch_up_limit": job.catch_up_limit,
        "overlap": job.overlap,
        "on_lease_loss": job.on_lease_loss,
        "retry_mode": job.retry_mode,
        "retry_base_seconds": job.retry_base_seconds,
        "retry_cap_seconds": job.retry_cap_seconds,
        "idempotency_key": job.idempotency_key,
        "status": job.status,
        "paused_until": time_text(job.paused_until),
        "pause_reason": job.pause_reason,
        "next_run_at": time_text(job.next_run_at),
        "last_run": last_run,
        "latest_run_id": str(job.last_run_id) if job.last_run_id else None,
        "version": job.version,
        "source": job.source,
        "created_at": time_text(job.created_at),
        "updated_at": time_text(job.updated_at),
    }


def _seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def _progress(run: RunRow) -> Document | None:
    """What a running run last said of itself."""
    if run.progress is None and run.progress_note is None:
        return None
    return {"percent": run.progress, "note": run.progress_note}


def run_document(run: RunRow) -> Document:
    """A run without its output, as lists show it."""
    return {
        "id": str(run.id),
        "job_id": str(run.job_id),
        "job_name": run.job_name,
        "status": run.status,
        "attempt": run.attempt,
        "failures": run.failures,
        "max_attempts": run.max_attempts,
        "trigger": run.trigger,
        "is_catch_up": run.is_catch_up,
        "scheduled_for": time_text(run.scheduled_for),
        "started_at": time_text(run.started_at),
        "finished_at": time_text(run.finished_at),
        "delay_seconds": _seconds_between(run.scheduled_for, run.started_at),
        "duration_seconds": _seconds_between(run.started_at, run.finished_at),
        "worker_id": run.worker_id,
        "lease_expires": time_text(run.lease_expires),
        "next_attempt_at": time_text(run.next_attempt_at),
        "is_held": run.is_held,
        "missing_function": run.missing_function,
        "payload": run.payload,
        "outcome": run.outcome,
        "exit_code": run.exit_code,
        "signal": run.signal,
        "http_status": run.http_status,
        "progress": _progress(run),
        "error": run.error,
        "error_type": run.error_type,
        "retry_of": str(run.retry_of) if run.retry_of else None,
        "cancel_requested_at": time_text(run.cancel_requested_at),
    }


def _output(head: str, tail: str, total_bytes: int) -> Document:
    """The kept output as one text."""
    text = stored_text(head, tail, total_bytes)
    return {"output": text, "output_truncated": bool(tail), "output_bytes": total_bytes}


def output_document(part: OutputPart) -> Document:
    return {
        "attempt": part.attempt,
        "data": part.data,
        "next_offset": part.next_offset,
        "finished": part.is_finished,
        **({"skipped": part.skipped} if part.skipped else {}),
    }


def attempt_document(attempt: AttemptRow) -> Document:
    return {
        "attempt": attempt.attempt,
        "worker_id": attempt.worker_id,
        "started_at": time_text(attempt.started_at),
        "ended_at": time_text(attempt.ended_at),
        "charged": attempt.charged,
        "outcome": attempt.outcome,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "http_status": attempt.http_status,
        "error": attempt.error,
        "error_type": attempt.error_type,
        **_output(attempt.output_head, attempt.output_tail, attempt.output_bytes),
    }


def run_detail_document(detail: RunDetail) -> Document:
    run = detail.run
    return {
        **run_document(run),
        **_output(run.output_head, run.output_tail, run.output_bytes),
        "attempts": [attempt_document(attempt) for attempt in detail.attempts],
    }


def bulk_document(action: str, result: BulkResult) -> Document:
    return {
        "action": action,
        "dry_run": False,
        "selected": result.selected,
        "done": result.done,
        "skipped": [{"id": str(one.run_id), "reason": one.reason} for one in result.skipped],
    }


def _fire_document(fire: Fire) -> Document:
    return {
        "at": time_text(fire.at),
        "local": fire.local.isoformat(),
        "offset": fire.offset,
        "notes": list(fire.notes),
    }


def preview_document(seen: Preview, after: datetime) -> Document:
    return {
        "valid": True,
        "cron_expr": seen.schedule.expr,
        "timezone": seen.schedule.zone,
        "after": time_text(after),
        "description": seen.description,
        "times": [_fire_document(fire) for fire in seen.fires],
        "warnings": list(seen.warnings),
    }


def upcoming_document(upcoming: Upcoming) -> Document:
    job = upcoming.job
    return {
        "job_id": str(job.id),
        "job_name": job.name,
        "status": job.status,
        "cron_expr": job.cron_expr,
        "run_at": time_text(job.run_at),
        "timezone": job.timezone,
        "description": upcoming.description,
        "times": [_fire_document(fire) for fire in upcoming.fires],
        "skipped": [time_text(tick) for tick in upcoming.skipped],
        "reason": upcoming.reason,
        "warnings": list(upcoming.warnings),
    }


def _explained_run(run: RunRow) -> Document:
    names = ("status", "outcome", "exit_code", "signal", "http_status")
    return {"id": str(run.id), **{name: getattr(run, name) for name in names}}


def explanation_document(seen: Explanation) -> Document:
    run = seen.run
    return {
        "job_id": str(seen.job.id),
        "job_name": seen.job.name,
        "at": time_text(seen.at),
        "local": seen.local.isoformat(),
        "timezone": seen.job.timezone,
        "outcome": seen.outcome,
        "reason": seen.reason,
        "run": _explained_run(run) if run else None,
        "fired_at": time_text(seen.fired_at),
        "delay_seconds": _seconds_between(seen.at, run.started_at) if run else None,
        "blocked_by": str(seen.blocked_by) if seen.blocked_by else None,
        "gap": {"from": time_text(seen.gap.from_at), "to": time_text(seen.gap.to_at)} if seen.gap else None,
        "previous_tick": time_text(seen.previous),
        "next_tick": time_text(seen.following),
        "notes": list(seen.notes),
    }


def counts_document(counts: Counts) -> Document:
    return {"runs": counts.runs, "jobs": counts.jobs}


def node_document(node: NodeRow) -> Document:
    return {
        "worker_id": node.worker_id,
        "boot_id": str(node.boot_id),
        "hostname": node.hostname,
        "pid": node.pid,
        "roles": node.roles,
        "concurrency": node.concurrency,
        "workers": node.workers,
        "running": node.running,
        "version": node.version,
        "is_alive": node.is_alive,
        "is_leader": node.is_leader,
        "started_at": time_text(node.started_at),
        "heartbeat_at": time_text(node.heartbeat_at),
    }
