"""What is hashed by column is what one entry's own definitions say."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.canonical import canonical_json
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.hashes import contents, hashes
from holdfast.sink.rows.prepared import ARRIVED
from tests.support.dispatch.entries import alternating, decision, table

_texts = st.text(alphabet='a"\\\u00e9\U0001f600', max_size=3)
_bodies = st.lists(st.tuples(st.sampled_from(["", "{", "{\u00e9"]), _texts), max_size=6)


def _entries(bodies: list[tuple[str, str]]) -> pa.Table:
    heads, tails = [head for head, _ in bodies], [tail for _, tail in bodies]
    text = pa.large_string()
    return pa.table({"head": pa.array(heads, text), "tail": pa.array(tails, text)})


@given(_bodies, st.integers(0, 6))
def test_contents_are_those_of_the_envelopes_whatever_the_chunks(
    bodies: list[tuple[str, str]], cut: int
) -> None:
    whole = _entries(bodies)
    chunked = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    assert contents(chunked).to_pylist() == [
        Envelope(head.encode(), tail.encode()).content.hex for head, tail in bodies
    ]


def test_a_hash_of_a_key_is_the_key() -> None:
    keys = [["a", "\u00e9"], ["b"]]
    found = hashes(pa.array([canonical_json(parts).decode() for parts in keys]))
    assert found.to_pylist() == [Key.of(parts).digest.hex for parts in keys]


def test_what_arrives_has_the_content_of_its_own_row() -> None:
    """Contents are hashed in the order of the input, and entries are put in order meanwhile."""
    rows = [*alternating("m_1", range(9)), *alternating("m_2", range(9))]
    rows += [rows[3], decision("m_1", 3, minor=9_000_000)]  # the same, and with other content
    prepared = prepare(BatchInput(table(*rows[::-1])))
    assert (prepared.duplicate_count, prepared.quarantined.num_rows) == (1, 1)
    assert prepared.arrived.schema == ARRIVED
    assert prepared.arrived.to_pylist() == [
        {name: entry[name] for name in ARRIVED.names if name != "content"}
        | {"content": Envelope(entry["head"].encode(), entry["tail"].encode()).content.hex}
        for entry in prepared.entries.to_pylist()
    ]
