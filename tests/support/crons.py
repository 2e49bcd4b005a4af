"""The functions of our first users, as one writes them; mypy looks at them as strictly as at everything else."""

from forgeflow import Cancel, CronContext, ForgeError, Retry, cron, job


@cron("0 9 * * *", timezone="America/New_York")
async def daily_report(ctx: CronContext) -> None:
    ctx.log.info("Generating report", {"run_id": str(ctx.run_id)})
    with ctx.db().connection() as connection:
        orders, revenue = connection.execute(
            "SELECT count(*), coalesce(sum(total), 0) FROM orders WHERE created_at::date = current_date"
        ).fetchone() or (0, 0)
    ctx.http().post(
        "https://chat.example.com/api/postMessage",
        headers={"Authorization": f"Bearer {ctx.env_require('CHAT_TOKEN')}"},
        json={"channel": "#daily-metrics", "text": f"Orders: {orders}, Revenue: ${revenue:.2f}"},
    ).raise_for_status()


@cron("* * * * *")
def heartbeat(ctx: CronContext) -> None:
    with ctx.db().connection() as connection:
        connection.execute("UPDATE system_status SET last_heartbeat = now()")


@cron("0 9 * * *", timezone="Europe/London")
async def morning_summary(ctx: CronContext) -> None:
    ctx.log.info("Morning summary", tz=ctx.timezone, at=ctx.local_scheduled_time().strftime("%H:%M"))


@cron("0 0 * * 0", catch_up=True, catch_up_limit=4)
def weekly_cleanup(ctx: CronContext) -> int:
    if ctx.is_catch_up:
        ctx.log.info("Catch-up run", {"scheduled": ctx.scheduled_time.isoformat()})
    with ctx.db().connection() as connection:
        return connection.execute("DELETE FROM sessions WHERE expires_at < now() - interval '7 days'").rowcount


@cron("*/15 * * * *", timeout="5m")
def sync_external_data(ctx: CronContext) -> None:
    if ctx.is_late():
        ctx.log.warn(
            "Running late",
            {"delay_seconds": ctx.delay().total_seconds(), "scheduled": ctx.scheduled_time.isoformat()},
        )


@cron("0 2 * * *", timeout="2h")
def nightly_data_export(ctx: CronContext) -> int:
    ctx.log.info("Starting export")
    with ctx.db().connection() as connection:
        rows = connection.execute("SELECT id FROM analytics WHERE exported = false ORDER BY id LIMIT 100000").fetchall()
    for start in range(0, len(rows), 1000):
        if ctx.should_stop():
            raise Retry("the node stops", after="1m")
        ctx.http().put(f"https://storage.example.com/{start}", json=[id_ for (id_,) in rows[start : start + 1000]])
        ctx.progress(min(start + 1000, len(rows)) / len(rows), "uploading")
    ctx.log.info("Export complete", {"rows": len(rows)})
    return len(rows)


@cron("* * * * *", timezone="UTC")
async def poll_iss_location(ctx: CronContext) -> None:
    response = ctx.http().get("http://api.open-notify.org/iss-now.json")
    if not response.is_success:
        ctx.log.error("API error", {"status": response.status_code})
        raise ForgeError("API request failed")
    position = response.json()["position"]
    with ctx.db().connection() as connection:
        connection.execute(
            "INSERT INTO iss_locations (latitude, longitude) VALUES (%s, %s)",
            (position["latitude"], position["longitude"]),
        )


@cron("30 * * * * *")
async def poll_api(ctx: CronContext) -> int:
    return len(ctx.http().get("http://api.example.com/status").json()["data"])


@job(timeout="30s", max_attempts=5)
def charge(ctx: CronContext, *, order_id: int, amount: float) -> str:
    ctx.auth.require_role("billing")
    if amount <= 0:
        raise Cancel(f"nothing to charge for order {order_id}")
    return f"order {order_id}, try {ctx.attempt} of {ctx.max_attempts}"
