"""A connection that lives long plans each statement for the filters that it is asked with."""

from holdfast.dispatcher.operators.attempts.store import AttemptFilter, Attempts


def test_plan_for_one_filter_is_not_kept_for_another(dsn: str) -> None:
    with Attempts.connect(dsn) as store:
        for _ in range(12):
            store.of_all_subjects(AttemptFilter(outcome="failed"), limit=1)
        plans = store._connection.execute(
            "SELECT sum(generic_plans) AS kept, sum(custom_plans) AS made"
            " FROM pg_prepared_statements"
        ).fetchone()
    assert plans is not None
    assert plans["kept"] == 0 < plans["made"]
