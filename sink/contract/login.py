"""Who runs a command, as the audit trail names them."""

import os
import pwd


def login_name() -> str:
    """Return the login name of this process, or the number of a user without one.

    It comes from the operating system and not from the environment, which anybody can set.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
