"""The table of bad input: what has to be refused, one rule each. Pure."""

from dispatcher.conformance.bad_bodies import bodies
from dispatcher.conformance.bad_checks import BadInput
from dispatcher.conformance.bad_headers import headers
from dispatcher.conformance.bad_signatures import signatures
from dispatcher.conformance.bad_times import times

BAD_INPUT: tuple[BadInput, ...] = (*headers(), *times(), *signatures(), *bodies())
