"""Items of a replay as JSON."""

from dispatcher.operators.common.session import Row
from sink.contract.key import Key


def item_row(item: Row) -> Row:
    """Return an item with its keys in wire form, without internal ids."""
    keys = {name: item[name] and Key(item[name]).text for name in ("key", "new_key")}
    return {**{k: v for k, v in item.items() if not k.endswith("_id")}, **keys}
