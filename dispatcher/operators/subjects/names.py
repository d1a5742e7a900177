"""Names in the order of their bytes, which every server sorts alike."""

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def beyond(prefix: str) -> str | None:
    """Return the first text behind all that begin with `prefix`; None where nothing is behind them.

    >>> beyond("m_4"), beyond(""), beyond("a\\U0010ffff"), beyond("\\ud7ff") == "\\ue000"
    ('m_5', None, 'b', True)
    """
    rest = prefix.rstrip(chr(_LAST))
    if not rest:
        return None
    code = ord(rest[-1]) + 1
    return rest[:-1] + chr(_SURROGATES.stop if code in _SURROGATES else code)
