"""Values as words of a command that a person pastes into a terminal. Pure."""

from shlex import quote


def shell_word(text: str) -> str:
    """Return `text` as one word of a shell command that a person pastes, without any change.

    Unprintable characters become escapes of their UTF-8 bytes, as bash, zsh and ksh read them.
    Nothing is truncated or masked: another name would be another subject.

    >>> print(shell_word("m  two"), shell_word("m\\ttwo"))
    'm  two' $'m\\x09two'
    """
    if text.isprintable():
        return quote(text)
    return f"$'{''.join(_escaped(each) for each in text)}'"


def _escaped(each: str) -> str:
    if each.isprintable() and each not in "'\\!":
        return each
    return "".join(f"\\x{byte:02x}" for byte in each.encode(errors="surrogatepass"))
