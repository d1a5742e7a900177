"""The dashboards: every metric of docs/reference/metrics.md is on a panel, or in LEFT_OUT."""

from deploy.grafana.panels import (
    Dashboard,
    Panel,
    Query,
    Row,
    alerting,
    mean,
    quantiles,
    value,
)

LEFT_OUT = {
    "holdfast_job_watermark_timestamp_seconds": "its lag is shown, which says more than a time",
}
"""Metrics without a panel, each with the reason."""

_WAITING = Row(
    "What waits, and what needs a person",
    (
        value(
            "Lanes due",
            "max by (endpoint) (holdfast_due)",
            "short",
            "{{endpoint}}",
            "Merchants whose next decision may be sent now; 10,000 a priority are counted.",
        ),
        alerting(
            "Age of the oldest decision due",
            "s",
            "{{endpoint}}",
            "HoldfastDecisionsLate",
            "How late decisions are. None is lost; they wait in order.",
        ),
        alerting(
            "New dead letters in 15 minutes",
            "short",
            "{{endpoint}}",
            "HoldfastEntryDead",
            "Decisions that were given up. A person decides what happens to them.",
        ),
        alerting(
            "Open breakers",
            "short",
            "{{endpoint}}",
            "HoldfastReceiverDown",
            "1 while an endpoint's deliveries wait because all of them failed.",
        ),
        alerting(
            "Decisions answered stale in 15 minutes",
            "short",
            "{{endpoint}}",
            "HoldfastDecisionStale",
            "The receiver had a higher sequence before the first delivery, and did not apply it.",
        ),
        alerting(
            "Answers about another key in 15 minutes",
            "short",
            "{{endpoint}}",
            "HoldfastAnswerOfAnotherKey",
            "The receiver, or a proxy before it, mixes up answers.",
        ),
    ),
)

_DELIVERIES = Row(
    "Deliveries",
    (
        value(
            "Attempts by outcome",
            "sum by (endpoint, outcome) (rate(holdfast_attempts_total[5m]))",
            "reqps",
            "{{endpoint}} {{outcome}}",
            "Recorded attempts a second.",
        ),
        quantiles(
            "Duration of an attempt",
            "holdfast_attempt_seconds",
            "What the receiver takes to answer.",
            by="endpoint",
        ),
        quantiles(
            "From a decision to its delivery",
            "holdfast_end_to_end_seconds",
            "From the commit of the batch to the stored 2xx, retries and waits included.",
            by="endpoint",
        ),
        alerting(
            "Attempts without an answer in 15 minutes",
            "short",
            "{{endpoint}}",
            "HoldfastOutcomesUnknown",
            "They may have arrived. Each is sent again with the same key.",
        ),
        alerting(
            "Attempts at a refused address in 15 minutes",
            "short",
            "{{endpoint}}",
            "HoldfastAddressRefused",
            "The dispatcher's own guard refused the address. Nothing was sent.",
        ),
        value(
            "Replayed items",
            "sum(rate(holdfast_replay_items_total[5m]))",
            "ops",
            "items",
            "Items of replays claimed a second; their attempts are among the others.",
        ),
    ),
)

_DISPATCHERS = Row(
    "Dispatchers",
    (
        alerting(
            "Dispatchers that report",
            "short",
            "processes",
            "HoldfastNoDispatcher",
            "Without one, every decision waits.",
        ),
        value(
            "Requests in flight",
            "sum by (instance) (holdfast_inflight)",
            "short",
            "{{instance}}",
            "Lanes being sent by each process.",
        ),
        value(
            "Leases that expired",
            "sum by (endpoint) (rate(holdfast_leases_expired_total[5m]))",
            "ops",
            "{{endpoint}}",
            "Attempts that ended with their lease: their process crashed or stalled.",
        ),
        alerting(
            "Results after their lease in 15 minutes",
            "short",
            "{{endpoint}}",
            "HoldfastLeaseOutlived",
            "A dispatcher stalled for longer than a lease; its results were not stored.",
        ),
    ),
)

_API = Row(
    "API and console",
    (
        value(
            "Requests by status",
            "sum by (status) (rate(holdfast_api_requests_total[5m]))",
            "reqps",
            "{{status}}",
            "Answered requests a second, those of the console too.",
        ),
        quantiles(
            "Duration of a request",
            "holdfast_api_request_seconds",
            "All routes, waits for a connection included.",
        ),
        alerting(
            "Requests without a valid token in 5 minutes",
            "short",
            "refused",
            "HoldfastApiTokensRefused",
            "Somebody guesses tokens, or a client has an expired one.",
        ),
        value(
            "Requests in progress",
            "sum by (instance) (holdfast_api_requests_in_flight)",
            "short",
            "{{instance}}",
            "The scrape of Prometheus is one of them.",
        ),
    ),
)

OPERATORS = Dashboard(
    "operators",
    "Holdfast: decisions and receivers",
    "What waits, what was given up, and how each receiver answers.",
    (_WAITING, _DELIVERIES, _DISPATCHERS, _API),
)

_BATCHES = Row(
    "Batches",
    (
        Panel(
            "Time since the latest batch",
            "Since its start and since the newest commit. A silent source begins no batch.",
            "s",
            (
                Query("time() - holdfast_job_last_batch_timestamp_seconds", "{{stream}} start"),
                Query("holdfast_job_last_commit_age_seconds", "{{stream}} commit"),
            ),
            "HoldfastJobStuck",
        ),
        quantiles(
            "Duration of a batch",
            "holdfast_job_batch_duration_seconds",
            "The whole of a batch, as Spark measures it.",
            by="stream",
            where='{phase="triggerExecution"}',
        ),
        mean(
            "Phases of a batch",
            "holdfast_job_batch_duration_seconds",
            "s",
            "Mean by Spark's phases. `addBatch` ends with the sink's transaction.",
            "stream, phase",
        ),
        alerting(
            "Lag of the watermark",
            "s",
            "{{stream}}",
            "HoldfastJobBehind",
            "Start of the latest batch less its watermark: how far the job is behind its input.",
        ),
        alerting(
            "Restarts in 15 minutes",
            "short",
            "{{stream}}",
            "HoldfastJobRestarts",
            "After a failure of the database, of Java, of a Python worker or of a file.",
        ),
        value(
            "State of the job",
            "holdfast_job_state == 1",
            "short",
            "{{stream}} {{state}}",
            "The state that is 1: starting, running, or waiting between two tries.",
        ),
    ),
)

_ROWS = Row(
    "Rows and decisions",
    (
        value(
            "Rows read",
            "sum by (stream) (rate(holdfast_job_rows_total[5m]))",
            "rowsps",
            "{{stream}}",
            "Rows a second, of batches that Spark recorded.",
        ),
        Panel(
            "Decisions of the sink's transaction",
            "Written, suppressed because nothing changed, or known from other batches.",
            "ops",
            (
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
            "sum by (stream, outcome) (rate(holdfast_job_batches_total[5m]))",
            "ops",
            "{{stream}} {{outcome}}",
            "Transactions a second. A replayed batch was written before, and writes nothing.",
        ),
        alerting(
            "Rows quarantined in an hour",
            "short",
            "{{stream}} {{reason}}",
            "HoldfastRowsQuarantined",
            "They cause no decision until they are corrected.",
        ),
        alerting(
            "Events from the future in an hour",
            "short",
            "{{stream}}",
            "HoldfastSourceClockAhead",
            "They are not applied. The clock of a source is ahead.",
        ),
        value(
            "Events that were not applied",
            "sum by (stream, reason) (rate(holdfast_job_late_rows_total[5m]))",
            "rowsps",
            "{{stream}} {{reason}}",
            "Late, dated ahead, repeated, or of a window that was published before.",
        ),
        Panel(
            "Windows and ticks of the idle clock",
            "Windows that were emitted, and ticks that close windows while no event comes.",
            "ops",
            (
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
            "holdfast_job_spark_dropped_rows",
            "short",
            "{{stream}}",
            "Of the latest batch. Always 0: otherwise the job ends.",
        ),
    ),
)

_CHECKPOINT = Row(
    "Checkpoint and state",
    (
        alerting(
            "Duration of a checkpoint",
            "s",
            "{{stream}}",
            "HoldfastCheckpointSlow",
            "Mean over 15 minutes. Every batch waits for its checkpoint.",
        ),
        mean(
            "Phases of a checkpoint",
            "holdfast_job_checkpoint_duration_seconds",
            "s",
            "Mean by phase. `upload` is a part of `state`; `load` comes before the batch.",
            "stream, phase",
        ),
        alerting(
            "Size of the state",
            "bytes",
            "{{stream}}",
            "HoldfastStateGrowing",
            "RocksDB's files. The alert also needs that it doubles within four hours.",
        ),
        value(
            "Memory of the state",
            "holdfast_job_state_memory_bytes",
            "bytes",
            "{{stream}}",
            "Memory of RocksDB, which --state-memory bounds.",
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
            "holdfast_claim_seconds",
            "With its wait for a connection.",
        ),
        quantiles(
            "Duration of a settlement",
            "holdfast_settle_seconds",
            "With its wait for a connection.",
        ),
        mean(
            "Lanes a claim",
            "holdfast_claim_batch_size",
            "short",
            "Mean over five minutes; 0 if nothing was due.",
        ),
        alerting(
            "Days with partitions",
            "short",
            "days",
            "HoldfastPartitionsEnd",
            "Whole days after today. A dispatcher makes them; without one, batches are refused.",
        ),
        alerting(
            "Missing entries in 15 minutes",
            "short",
            "{{instance}}",
            "HoldfastSequenceGap",
            "A sequence has a gap: rows were deleted, or a part was restored.",
        ),
    ),
)

_CONNECTIONS = Row(
    "Connections and clocks",
    (
        value(
            "Waits for a connection",
            "sum by (instance) (rate(holdfast_db_pool_wait_seconds_total[5m]))",
            "short",
            "{{instance}}",
            "Seconds of waiting in each second, of all tasks of a dispatcher.",
        ),
        value(
            "Connections of the dispatchers",
            "sum by (instance) (holdfast_db_connections)",
            "short",
            "{{instance}}",
            "Open connections of all pools.",
        ),
        Panel(
            "Connections of the API",
            "Open ones, and how many of these are idle.",
            "short",
            (
                Query("sum by (instance) (holdfast_api_db_connections)", "{{instance}} open"),
                Query("sum by (instance) (holdfast_api_db_connections_idle)", "{{instance}} idle"),
            ),
        ),
        alerting(
            "API requests that wait for a connection",
            "short",
            "{{instance}}",
            "HoldfastApiWaits",
            "The least of the last minute.",
        ),
        alerting(
            "Offset of the clock",
            "s",
            "{{instance}}",
            "HoldfastClockSkew",
            "Between host and database. Receivers refuse signatures that are five minutes off.",
        ),
    ),
)

_FAULTS = Row(
    "Faults",
    (
        alerting(
            "Results dropped in 15 minutes",
            "short",
            "{{instance}}",
            "HoldfastResultsDropped",
            "The database was away for longer than a lease. They are sent again with the same key.",
        ),
        alerting(
            "Internal errors in an hour",
            "short",
            "{{instance}}",
            "HoldfastDispatcherFault",
            "A line `crashed` in the log has the reason.",
        ),
    ),
)

OUTBOX = Dashboard(
    "outbox",
    "Holdfast: Postgres and the outbox",
    "How the database serves dispatchers and the API.",
    (_OUTBOX, _CONNECTIONS, _FAULTS),
)

DASHBOARDS = (OPERATORS, JOB, OUTBOX)
