"""The files of the demo."""

import secrets
import shutil
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from holdfast.sink.contract.exits import CommandError, ExitCode

SECRET_BYTES = 32
MARK = "demo.lock"
"""This file marks a directory as the demo's, and is locked by the running demo."""


@dataclass(frozen=True)
class Layout:
    """The files of a run, all inside `root`; a run first removes those of the last one."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / MARK

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def events(self) -> Path:
        return self.root / "events"

    @property
    def policy(self) -> Path:
        return self.root / "policy.toml"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def secrets(self) -> Path:
        """The folder that secret references of endpoints may name."""
        return self.root / "secrets"

    @property
    def secret(self) -> Path:
        return self.secrets / "webhook"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def flags(self) -> Path:
        return self.root / "flags"

    @property
    def port(self) -> Path:
        return self.flags / "port"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    def claim(self) -> None:
        """Create `root`, or reuse it if it belongs to the demo; else raises `CommandError`.

        A run deletes the demo's folders, so `root` must not contain anything else.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.lock.exists() and any(self.root.iterdir()):
                raise CommandError(
                    f"{self.root} is not empty and not a directory of the demo. Nothing was"
                    " changed; choose another --directory.",
                    ExitCode.USAGE,
                    code="invalid_directory",
                )
            self.lock.touch()
        except OSError as error:
            raise CommandError(
                f"the demo cannot use {self.root} ({error.strerror}). Nothing was changed; choose"
                " another --directory.",
                ExitCode.USAGE,
                code="invalid_directory",
            ) from error

    def clear(self) -> None:
        """Delete the files of an earlier run, and no others."""
        for folder in (
            self.events,
            self.broker,
            self.checkpoint,
            self.secrets,
            self.logs,
            self.flags,
        ):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.policy, self.report):
            file.unlink(missing_ok=True)
        self.flags.mkdir(parents=True)

    def make_secret(self) -> None:
        """Write a new webhook secret that only this account can read."""
        self.secrets.mkdir(mode=0o700)
        self.secret.touch(mode=0o600)
        text = b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        self.secret.write_text(f"whsec_{text}\n", encoding="ascii")
