"""What the stack shares with `deploy/compose`: names and ports, from its `stack.env`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Self

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import whole_number


class Input(StrEnum):
    """Where events arrive."""

    AUTO = "auto"
    FILES = "files"
    TOPIC = "topic"


@dataclass(frozen=True)
class StackSettings:
    """Names and ports of the stack, all on 127.0.0.1."""

    stream: str
    topic: str
    payouts_port: int
    kafka_port: int
    prometheus_port: int
    alertmanager_port: int
    dashboards_port: int
    """Where Grafana listens in `deploy/compose`."""
    console_port: int
    """Plain HTTP on this machine; in `deploy/compose` a proxy with TLS stands before it."""
    job_port: int
    dispatcher_ports: tuple[int, ...]

    @classmethod
    def read(cls) -> Self:
        """Return the settings of `deploy/compose/stack.env`; the environment wins, as in compose.

        Raises `CommandError` for a port that is no number.
        """
        text = (files("holdfast.deploy.compose") / "stack.env").read_text(encoding="utf-8")
        lines = (line.strip() for line in text.splitlines())
        variables = dict(line.split("=", 1) for line in lines if line and line[0] != "#")
        try:
            return cls.of(
                variables | {name: os.environ[name] for name in variables if name in os.environ}
            )
        except ValueError as error:
            raise CommandError(
                f"a port of the stack is no number ({error}). Nothing was started; correct the"
                " variable (deploy/compose/stack.env has their names).",
                ExitCode.USAGE,
                code="invalid_setting",
            ) from error

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        """Return the settings that variables hold; raises KeyError for a missing one."""
        return cls(
            stream=variables["STREAM"],
            topic=variables["TOPIC"],
            payouts_port=whole_number(variables["PAYOUTS_PORT"]),
            kafka_port=whole_number(variables["KAFKA_PORT"]),
            prometheus_port=whole_number(variables["PROMETHEUS_PORT"]),
            alertmanager_port=whole_number(variables["ALERTMANAGER_PORT"]),
            dashboards_port=whole_number(variables["GRAFANA_PORT"]),
            console_port=whole_number(variables["API_PORT"]),
            job_port=whole_number(variables["JOB_METRICS_PORT"]),
            dispatcher_ports=tuple(
                map(whole_number, variables["DISPATCHER_METRICS_PORTS"].split(","))
            ),
        )

    @property
    def scraped(self) -> tuple[str, ...]:
        """The addresses with metrics."""
        ports = (*self.dispatcher_ports, self.job_port, self.console_port, self.payouts_port)
        return tuple(f"127.0.0.1:{port}" for port in ports)
