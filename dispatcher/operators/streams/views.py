"""The JSON of a batch."""

from holdfast.dispatcher.operators.common.session import Row
from holdfast.sink.contract.source_offsets import ranges, readable_offsets


def with_offsets(found: Row) -> Row:
    """Return a row of `batch_find` with its source offsets read, and `ranges`: what it read."""
    shown = {name: found[name] for name in found if name != "offsets_before"}
    text = found["source_offsets"]
    offsets = readable_offsets(text)
    if offsets is not None:
        offsets["ranges"] = ranges(found["offsets_before"], text, found["batch_id"])
    return shown | {"source_offsets": offsets}
