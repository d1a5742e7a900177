"""What becomes of an entry in a replay, in words, and text of strangers made visible. Pure."""

from sink.contract.states import ReplayKind

MEANS = {
    ReplayKind.RELEASE: "dead, holding its lane: the lane goes on with it, with a full schedule",
    ReplayKind.HASTEN: "waiting for a retry: due now, the attempts go on counting",
    ReplayKind.RESEND: "sent again beside the lane, same key and bytes, behind live traffic",
    ReplayKind.NOTHING: "left alone: sent in any case, or in another replay",
    ReplayKind.REISSUE: "decided anew under a new key: the business action is REPEATED",
}
"""What becomes of an entry, by its kind."""


def visible(text: str) -> str:
    """Return `text` with whatever does not print, or drives a terminal, as an escape.

    >>> visible("m\\x1b[2J\\u202e")
    'm\\\\x1b[2J\\\\u202e'
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
