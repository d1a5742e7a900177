"""The table of bad input: what has to be refused, one rule each. Pure."""

from dispatcher.workbench.conform.bad_input.bad_bodies import bodies
from dispatcher.workbench.conform.bad_input.bad_checks import BadInput
from dispatcher.workbench.conform.bad_input.bad_headers import headers
from dispatcher.workbench.conform.bad_input.bad_signatures import signatures
from dispatcher.workbench.conform.bad_input.bad_times import times

BAD_INPUT: tuple[BadInput, ...] = (*headers(), *times(), *signatures(), *bodies())
