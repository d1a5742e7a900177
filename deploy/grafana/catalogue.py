"""The dashboards: every metric of docs/reference/metrics.md is on a panel, or in LEFT_OUT."""

from holdfast.deploy.grafana.panels import alerting, mean, quantiles, value
from holdfast.deploy.local.stack.panels import Dashboard, Panel, Query, Row

LEFT_OUT = {
    "holdfast_job_late_ahead_rows_total": "they are among the late rows, which are shown",
    "holdfast_job_savepoint_failures_total": "only a job with --savepoint-every has it above 0",
    "holdfast_job_savepoint_timestamp_seconds": "only a job with --savepoint-every has it",
    "holdfast_log_lines_dropped_total": "it grows while the disk under the log is full",
    "holdfast_subjects_on_hold": "`status` names them until a person resumes them",
    "holdfast_job_watermark_timestamp_seconds": "its lag is shown, which says more than a time",
}
"""Metrics without a panel, each with the reason."""


def _since_reported(who: str, rule: str, legend: str) -> Panel:
    delay = "Looked up every minute, so up to a minute and a half is normal."
    title = f"Time since {who} reported"
    return alerting(title, rule=rule, legend=legend, description=delay, unit="s")


_WAITING = Row(
    "What waits, and what needs a person",
    (
        value(
            "Lanes due",
            expression="max by (endpoint) (holdfast_due)",
            legend="{{endpoint}}",
            description=(
                "Merchants whose next decision may be sent now; 10,000 a priority are counted."
            ),
        ),
        alerting(
            "Age of the oldest decision due",
            unit="s",
            legend="{{endpoint}}",
            rule="HoldfastDecisionsLate",
            description="How late decisions are. None is lost; they wait in order.",
        ),
        alerting(
            "Age of the oldest decision not delivered",
            unit="s",
            legend="{{endpoint}}",
            rule="HoldfastDecisionUndelivered",
            description="Whatever it waits for: a retry, a breaker, a person.",
        ),
        alerting(
            "New dead letters in 15 minutes",
            legend="{{endpoint}}",
            rule="HoldfastEntryDead",
            description="Decisions that were given up. A person decides what happens to them.",
        ),
        alerting(
            "Open breakers",
            legend="{{endpoint}}",
            rule="HoldfastReceiverDown",
            description="1 while an endpoint's deliveries wait because all of them failed.",
        ),
        alerting(
            "Decisions answered stale in 15 minutes",
            legend="{{endpoint}}",
            rule="HoldfastDecisionStale",
            description="The receiver had a higher sequence before, and did not apply it.",
        ),
        alerting(
            "Answers about another key in 15 minutes",
            legend="{{endpoint}}",
            rule="HoldfastAnswerOfAnotherKey",
            description="The receiver, or a proxy before it, mixes up answers.",
        ),
    ),
)

_DELIVERIES = Row(
    "Deliveries",
    (
        value(
            "Attempts by outcome",
            expression="sum by (endpoint, outcome) (rate(holdfast_attempts_total[5m]))",
            unit="reqps",
            legend="{{endpoint}} {{outcome}}",
            description="Recorded attempts a second.",
        ),
        quantiles(
            "Duration of an attempt",
            metric="holdfast_attempt_seconds",
            description="What the receiver takes to answer.",
            by="endpoint",
        ),
        quantiles(
            "From a decision to its delivery",
            metric="holdfast_end_to_end_seconds",
            description=(
                "From the commit of the batch to the stored 2xx, retries and waits included."
            ),
            by="endpoint",
        ),
        alerting(
            "Attempts without an answer in 15 minutes",
            legend="{{endpoint}}",
            rule="HoldfastOutcomesUnknown",
            description="They may have arrived. Each is sent again with the same key.",
        ),
        alerting(
            "Attempts at a refused address in 15 minutes",
            legend="{{endpoint}}",
            rule="HoldfastAddressRefused",
            description="The dispatcher's own guard refused the address. Nothing was sent.",
        ),
        alerting(
            "Key windows that shrank in an hour",
            legend="{{endpoint}}",
            rule="HoldfastKeyWindowShrunk",
            description="The receiver keeps keys for less time than before, or than retries need.",
        ),
        value(
            "Replayed items",
            expression="sum(rate(holdfast_replay_items_total[5m]))",
            unit="ops",
            legend="items",
            description="Items of replays claimed a second; their attempts are among the others.",
        ),
    ),
)

_DISPATCHERS = Row(
    "Dispatchers",
    (
        alerting(
            "Dispatchers that report",
            legend="processes",
            rule="HoldfastNoDispatcher",
            description="Without one, every decision waits.",
        ),
        alerting(
            "Processes that Prometheus reaches",
            legend="{{instance}}",
            rule="HoldfastTargetDown",
            description="1 for each process that answers a scrape, else 0.",
        ),
        value(
            "Requests in flight",
            expression="sum by (instance) (holdfast_inflight)",
            legend="{{instance}}",
            description="Lanes being sent by each process.",
        ),
        value(
            "Leases that expired",
            expression="sum by (endpoint) (rate(holdfast_leases_expired_total[5m]))",
            unit="ops",
            legend="{{endpoint}}",
            description="Attempts that ended with their lease: their process crashed or stalled.",
        ),
        alerting(
            "Results after their lease in 15 minutes",
            legend="{{endpoint}}",
            rule="HoldfastLeaseOutlived",
            description=(
                "A dispatcher stalled for longer than a lease; its results were not stored."
            ),
        ),
    ),
)

_API = Row(
    "API and console",
    (
        value(
            "Requests by status",
            expression="sum by (status) (rate(holdfast_api_requests_total[5m]))",
            unit="reqps",
            legend="{{status}}",
            description="Answered requests a second, those of the console too.",
        ),
        quantiles(
            "Duration of a request",
            metric="holdfast_api_request_seconds",
            description="All routes, waits for a connection included.",
        ),
        alerting(
            "Requests without a valid token in 5 minutes",
            legend="refused",
            rule="HoldfastApiTokensRefused",
            description="Somebody guesses tokens, or a client has an expired one.",
        ),
        value(
            "Requests in progress",
            expression="sum by (instance) (holdfast_api_requests_in_flight)",
            legend="{{instance}}",
            description="The scrape of Prometheus is one of them.",
        ),
        _since_reported("an API server", "HoldfastApiGone", "any"),
    ),
)

_PAYOUTS = Row(
    "Payouts service",
    (
        value(
            "Merchants held",
            expression="max(holdfast_payouts_held)",
            legend="held",
            description="Merchants whose payouts are held now, by the service's own table.",
        ),
        _since_reported("the payouts service", "HoldfastPayoutsGone", "any"),
        value(
            "Holds changed",
            expression="sum by (action, effect) (rate(holdfast_payouts_actions_total[5m]))",
            unit="ops",
            legend="{{action}} {{effect}}",
            description="Each order once. A refused transition is a fault, or a skipped decision.",
        ),
        value(
            "Deliveries by outcome",
            expression="sum by (outcome) (rate(holdfast_payouts_deliveries_total[5m]))",
            unit="reqps",
            legend="{{outcome}}",
            description="A duplicate is a webhook that came again and changed nothing.",
        ),
        value(
            "Answers by status",
            expression="sum by (status) (rate(holdfast_payouts_answers_total[5m]))",
            unit="reqps",
            legend="{{status}}",
            description="401 has no valid signature; 503 means its database does not answer.",
        ),
    ),
)

OPERATORS = Dashboard(
    "operators",
    "Holdfast: decisions and receivers",
    "What waits, what was given up, and how each receiver answers.",
    (_WAITING, _DELIVERIES, _DISPATCHERS, _API, _PAYOUTS),
)

_BATCHES = Row(
    "Batches",
    (
        Panel(
            "Time since the latest batch",
            description=(
                "Since its start and since the newest commit. A silent source begins no batch."
            ),
            unit="s",
            queries=(
                Query("time() - holdfast_job_last_batch_timestamp_seconds", "{{stream}} start"),
                Query("holdfast_job_last_commit_age_seconds", "{{stream}} commit"),
            ),
            alert="HoldfastJobStuck",
        ),
        _since_reported("the job", "HoldfastJobGone", "{{stream}}"),
        quantiles(
            "Duration of a batch",
            metric="holdfast_job_batch_duration_seconds",
            description="The whole of a batch, as Spark measures it.",
            by="stream",
            where='{phase="triggerExecution"}',
        ),
        mean(
            "Phases of a batch",
            metric="holdfast_job_batch_duration_seconds",
            unit="s",
            description="Mean by Spark's phases. `addBatch` ends with the sink's transaction.",
            by="stream, phase",
        ),
        alerting(
            "Lag of the watermark",
            unit="s",
            legend="{{stream}}",
            rule="HoldfastJobBehind",
            description=(
                "Start of the latest batch less its watermark: how far the job is behind its input."
            ),
        ),
        alerting(
            "Restarts in 15 minutes",
            legend="{{stream}}",
            rule="HoldfastJobRestarts",
            description=(
                "After a failure of the database, of Java, of a Python worker or of a file."
            ),
        ),
        value(
            "State of the job",
            expression="holdfast_job_state == 1",
            legend="{{stream}} {{state}}",
            description="The state that is 1: starting, running, or waiting between two tries.",
        ),
    ),
)

_ROWS = Row(
    "Rows and decisions",
    (
        value(
            "Rows read",
            expression="sum by (stream) (rate(holdfast_job_rows_total[5m]))",
            unit="rowsps",
            legend="{{stream}}",
            description="Rows a second, of batches that Spark recorded.",
        ),
        Panel(
            "Decisions of the sink's transaction",
            description="Written, suppressed because nothing changed, or known from other batches.",
            unit="ops",
            queries=(
                Query(
                    "sum by (stream) (rate(holdfast_job_entries_total[5m]))", "{{stream}} written"
                ),
                Query(
                    "sum by (stream) (rate(holdfast_job_suppressed_total[5m]))",
                    "{{stream}} suppressed",
                ),
                Query(
                    "sum by (stream) (rate(holdfast_job_duplicate_keys_total[5m]))",
                    "{{stream}} known",
                ),
            ),
        ),
        value(
            "Batches in the sink",
            expression="sum by (stream, outcome) (rate(holdfast_job_batches_total[5m]))",
            unit="ops",
            legend="{{stream}} {{outcome}}",
            description=(
                "Transactions a second. A replayed batch was written before, and writes nothing."
            ),
        ),
        alerting(
            "Rows quarantined in an hour",
            legend="{{stream}} {{reason}}",
            rule="HoldfastRowsQuarantined",
            description="They cause no decision until they are corrected.",
        ),
        alerting(
            "Events from the future in an hour",
            legend="{{stream}}",
            rule="HoldfastSourceClockAhead",
            description="They are not applied. The clock of a source is ahead.",
        ),
        value(
            "Events that were not applied",
            expression="sum by (stream, reason) (rate(holdfast_job_late_rows_total[5m]))",
            unit="rowsps",
            legend="{{stream}} {{reason}}",
            description="Late, dated ahead, repeated, or of a window that was published before.",
        ),
        value(
            "Watermark ahead of the clock",
            expression="max by (stream) (holdfast_job_watermark_ahead_seconds)",
            unit="s",
            legend="{{stream}}",
            description="Above 0 an event was dated ahead, and events on time can be late.",
        ),
        Panel(
            "Windows and ticks of the idle clock",
            description="Windows that were emitted, and ticks that close windows without events.",
            unit="ops",
            queries=(
                Query(
                    "sum by (stream) (rate(holdfast_job_windows_total[5m]))", "{{stream}} windows"
                ),
                Query(
                    "sum by (stream) (rate(holdfast_job_idle_ticks_total[5m]))", "{{stream}} ticks"
                ),
            ),
        ),
        value(
            "Rows that Spark dropped",
            expression="holdfast_job_spark_dropped_rows",
            legend="{{stream}}",
            description="Of the latest batch. Always 0: otherwise the job ends.",
        ),
    ),
)

_CHECKPOINT = Row(
    "Checkpoint and state",
    (
        alerting(
            "Duration of a checkpoint",
            unit="s",
            legend="{{stream}}",
            rule="HoldfastCheckpointSlow",
            description="Mean over 15 minutes. Every batch waits for its checkpoint.",
        ),
        mean(
            "Phases of a checkpoint",
            metric="holdfast_job_checkpoint_duration_seconds",
            unit="s",
            description=(
                "Mean by phase. `upload` is a part of `state`; `load` comes before the batch."
            ),
            by="stream, phase",
        ),
        alerting(
            "Size of the state",
            unit="bytes",
            legend="{{stream}}",
            rule="HoldfastStateGrowing",
            description="RocksDB's files. The alert also needs that it doubles within four hours.",
        ),
        value(
            "Memory of the state",
            expression="holdfast_job_state_memory_bytes",
            unit="bytes",
            legend="{{stream}}",
            description="Memory of RocksDB, which --state-memory bounds.",
        ),
    ),
)

JOB = Dashboard(
    "job",
    "Holdfast: the job",
    "Batches, decisions, checkpoints and state of the exposure job.",
    (_BATCHES, _ROWS, _CHECKPOINT),
)

_OUTBOX = Row(
    "The outbox",
    (
        quantiles(
            "Duration of a claim",
            metric="holdfast_claim_seconds",
            description="With its wait for a connection.",
        ),
        quantiles(
            "Duration of a settlement",
            metric="holdfast_settle_seconds",
            description="With its wait for a connection.",
        ),
        mean(
            "Lanes a claim",
            metric="holdfast_claim_batch_size",
            unit="short",
            description="Mean over five minutes; 0 if nothing was due.",
        ),
        alerting(
            "Days with partitions",
            legend="days",
            rule="HoldfastPartitionsEnd",
            description=(
                "Whole days after today. A dispatcher makes them; without one, batches are refused."
            ),
        ),
        alerting(
            "Missing entries in 15 minutes",
            legend="{{instance}}",
            rule="HoldfastSequenceGap",
            description="A sequence has a gap: rows were deleted, or a part was restored.",
        ),
    ),
)

_CONNECTIONS = Row(
    "Connections and clocks",
    (
        value(
            "Waits for a connection",
            expression="sum by (instance) (rate(holdfast_db_pool_wait_seconds_total[5m]))",
            legend="{{instance}}",
            description="Seconds of waiting in each second, of all tasks of a dispatcher.",
        ),
        value(
            "Connections of the dispatchers",
            expression="sum by (instance) (holdfast_db_connections)",
            legend="{{instance}}",
            description="Open connections of all pools.",
        ),
        Panel(
            "Connections of the API",
            description="Open ones, and how many of these are idle.",
            unit="short",
            queries=(
                Query("sum by (instance) (holdfast_api_db_connections)", "{{instance}} open"),
                Query("sum by (instance) (holdfast_api_db_connections_idle)", "{{instance}} idle"),
            ),
        ),
        alerting(
            "API requests that wait for a connection",
            legend="{{instance}}",
            rule="HoldfastApiWaits",
            description="The least of the last minute.",
        ),
        alerting(
            "Time since the database answered",
            unit="s",
            legend="{{instance}}",
            rule="HoldfastDatabaseAway",
            description="Each dispatcher and each API server asks every five seconds.",
        ),
        alerting(
            "Offset of the clock",
            unit="s",
            legend="{{instance}}",
            rule="HoldfastClockSkew",
            description="Between host and database. Signatures carry the database's time.",
        ),
        alerting(
            "Offset of the clock that stops deliveries",
            unit="s",
            legend="{{instance}}",
            rule="HoldfastClockStopsDelivery",
            description="As above. Beyond what receivers accept, the dispatcher claims nothing.",
        ),
    ),
)

_FAULTS = Row(
    "Faults",
    (
        alerting(
            "Results dropped in 15 minutes",
            legend="{{instance}}",
            rule="HoldfastResultsDropped",
            description=(
                "The database was away for longer than a lease. They are sent again with the "
                "same key."
            ),
        ),
        alerting(
            "Internal errors in an hour",
            legend="{{instance}}",
            rule="HoldfastDispatcherFault",
            description="A line `loop.crashed` in the log has the reason.",
        ),
    ),
)

_POSTGRES = Row(
    "Postgres",
    (
        alerting(
            "Transactions since the oldest snapshot",
            legend="{{holder}}",
            rule="HoldfastSnapshotHeld",
            description="Rows that died since are not removed. `holdfast database` shows whose.",
        ),
        alerting(
            "Dead rows",
            legend="{{table}}",
            rule="HoldfastDeadRows",
            description="Of the tables that are changed in place; an estimate by the server.",
        ),
        value(
            "Time since the last VACUUM",
            expression="min by (table) (holdfast_postgres_vacuum_age_seconds)",
            unit="s",
            legend="{{table}}",
            description="By autovacuum or a person. A table without changes needs none.",
        ),
        Panel(
            "Age of the oldest row that is not frozen",
            description="In transactions. Autovacuum freezes at the limit, even where it is off.",
            unit="short",
            queries=(
                Query("max by (counter) (holdfast_postgres_frozen_age)", "{{counter}}"),
                Query("max by (counter) (holdfast_postgres_frozen_age_max)", "{{counter}} limit"),
            ),
            alert="HoldfastWraparoundNear",
        ),
        value(
            "Size of the database",
            expression="max(holdfast_postgres_size_bytes)",
            unit="bytes",
            legend="size",
            description="Tables, indexes and catalogue, without the write-ahead log.",
        ),
        Panel(
            "Connections of the server",
            description="All databases together, and how many services may have.",
            unit="short",
            queries=(
                Query("max(holdfast_postgres_connections)", "open"),
                Query("max(holdfast_postgres_connections_max)", "limit"),
            ),
        ),
    ),
)

OUTBOX = Dashboard(
    "outbox",
    "Holdfast: Postgres and the outbox",
    "How the database serves dispatchers and the API.",
    (_OUTBOX, _POSTGRES, _CONNECTIONS, _FAULTS),
)

DASHBOARDS = (OPERATORS, JOB, OUTBOX)
