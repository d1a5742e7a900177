"""The contract: what the sink, the dispatcher and the receiver share.

An *entry* is one decision to deliver. It belongs to a *subject* (its ordering key), has a gapless
*sequence* within that subject, and a *key* that names the business action for ever. Its body is
composed once (`holdfast.sink.contract.envelope`); every attempt sends the same bytes.

Nothing here does I/O, and only the standard library is imported (`tables` alone needs SQLAlchemy).
The vectors in `tests/contract/vectors/` freeze canonical JSON, keys and bodies: a change of any of
them is a new version of the contract, never an edit.
"""
