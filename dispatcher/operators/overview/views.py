"""What is on its way, what is late, what needs a person."""

from dispatcher.operators.streams.operator import OperatorStore, Row


def standing(store: OperatorStore) -> Row:
    """Return the totals, `needs` as the overview has them and `degraded` where there is any.

    Streams, endpoints and the dispatchers that are alive stand beside them.
    """
    totals, needs = store.totals(), store.needs()
    return {
        **totals,
        "degraded": bool(needs),
        "needs": needs,
        "streams": store.streams(),
        "endpoints": store.endpoints(),
        "dispatchers": store.dispatchers(),
    }
