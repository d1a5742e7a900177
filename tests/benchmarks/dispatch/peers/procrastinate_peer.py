"""procrastinate on psycopg; with the option `lock`, a lock per subject, which keeps the order."""

from typing import Any

import procrastinate
import wire

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(
        conninfo=wire.DSN, min_size=4, max_size=16, kwargs={"options": "-c jit=off"}
    )
)
_session: list[Any] = []


@app.task(name="webhook", queue="webhooks")
async def webhook(key: str, body: str) -> None:
    """Deliver one."""
    await wire.post(_session[0], key, body)


async def _add(job: wire.Job) -> object:
    lock = job.subject if wire.OPTION == "lock" else None
    return await webhook.configure(lock=lock).defer_async(key=job.key, body=job.body)


async def load() -> None:
    """Make the tables and add every job: one transaction each, which is what its API offers.

    Jobs of one lock go in one call where a transaction has several, by `batch_defer_async`.
    """
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for some in wire.transactions():
            if wire.OPTION == "lock":
                for job in some:
                    await _add(job)
            else:
                await webhook.configure().batch_defer_async(
                    *({"key": job.key, "body": job.body} for job in some)
                )


async def work() -> None:
    """Deliver."""
    async with app.open_async(), wire.aiohttp_session() as session:
        _session.append(session)
        wire.ready()
        await app.run_worker_async(
            queues=["webhooks"],
            concurrency=wire.SETTINGS.get("concurrency", wire.CONNECTIONS),
            fetch_job_polling_interval=1.0,
            install_signal_handlers=False,
        )


async def trickle() -> None:
    """Add jobs one by one."""
    async with app.open_async():
        await wire.trickle(_add)


if __name__ == "__main__":
    wire.main(load=load, work=work, trickle=trickle)
