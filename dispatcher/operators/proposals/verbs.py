"""Proposals: changes that one person proposes and a second person approves."""

import json
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators import registry
from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import visible
from holdfast.dispatcher.operators.common.times import FORMS
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.states import AccessRole

GROUP = verbs.Group(
    "proposal",
    help="Proposals, which a second person approves: list, show, approve, cancel.",
    store=Proposals,
    path="/proposals",
    tag="proposals",
)

_LIST = ("id", "verb", "target", "state", "reason", "actor", "created_at", "approved_by")
_FACTS = (
    *("verb", "target", "state", "reason", "actor", "person", "created_at"),
    *("approved_by", "approved_by_person", "approved_at", "applied_by", "applied_at"),
    *("cancelled_by", "cancelled_at", "sha256"),
)

_ID = "As `list` shows it; the first 8 hex digits are enough."
ProposalId = Annotated[
    UUID, verbs.Param("The proposal's id.", verbs.Kind.PROPOSAL, _ID, argument="ID")
]


class ListedProposal(TypedDict):
    """A proposed change."""

    id: UUID
    verb: Annotated[str, verbs.Doc("The action, as the audit trail names it.")]
    target: str
    state: Annotated[str, verbs.Doc("planned, approved, applied or cancelled.")]
    sha256: Annotated[
        str, verbs.Doc("SHA-256 of verb, target and detail as canonical JSON, in hex.")
    ]
    reason: str
    actor: str
    person: Annotated[
        str, verbs.Doc("The person who proposed it, independent of the token or login used.")
    ]
    created_at: verbs.Time
    approved_by: str | None
    approved_by_person: str | None
    approved_at: verbs.Time | None
    applied_by: str | None
    applied_at: verbs.Time | None
    cancelled_by: str | None
    cancelled_at: verbs.Time | None


class Proposal(ListedProposal):
    """A proposed change with all its details."""

    detail: Annotated[
        dict[str, Any], verbs.Doc("Exactly what is done once it is approved. Immutable.")
    ]


class ProposalPage(TypedDict):
    """Proposals, the newest first."""

    proposals: list[ListedProposal]
    next_before: verbs.Time | None


def _list(page: verbs.Page, _: Row) -> verbs.Text:
    rows = [r | {"id": r["id"].hex[:8], "reason": visible(r["reason"])} for r in page.rows]
    yield verbs.Table(rows, _LIST, "Proposals", ("approved_by", "actor", "created_at"))


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List proposals, the newest first. Exit code 3: none match.",
    text=_list,
    route=verbs.Route("List proposals."),
    rows="proposals",
    result=ListedProposal,
    page=ProposalPage,
    empty="no proposal matches. Nothing was changed; --all includes those that are closed.",
)
def list_proposals(
    store: Proposals,
    target: Annotated[
        str | None,
        verbs.Param(
            "Only proposals for this target.",
            verbs.Kind.TEXT,
            "Only proposals for this target, such as 'quarantine 17'.",
        ),
    ] = None,
    open: Annotated[  # noqa: A002 - the parameter's name
        bool,
        verbs.Param(
            "Only open ones; false: all.",
            command_help="Only open ones, or all.",
            option="--open/--all",
        ),
    ] = True,
    limit: verbs.Limit = 50,
    before: Annotated[
        datetime | None,
        verbs.Param(
            "Only proposals created before this time.",
            verbs.Kind.TIME,
            f"Only rows created before this time: {FORMS}.",
        ),
    ] = None,
) -> verbs.Page:
    """Return proposals without their details, the newest first."""
    rows = store.proposals(limit=limit + 1, before=before, target=target, open_=open)
    return verbs.page_of(rows, limit, "created_at")


def _show(row: Row, _: Row) -> verbs.Text:
    yield f"proposal {row['id'].hex[:8]}"
    yield verbs.Facts({name: row[name] for name in _FACTS}, 18)
    yield json.dumps(row["detail"], ensure_ascii=True, indent=2)
    yield from _next(row)


@GROUP.verb(
    "show",
    help="Show a proposal with exactly what it would do. Read it before you approve it.",
    text=_show,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Show a proposal with all its details.", "/{proposal_id}"),
    result=Proposal,
    bodies=verbs.Bodies(
        action="proposal.read", read=lambda row: (row["target"], {"proposal": row["id"]})
    ),
)
def show_proposal(store: Proposals, proposal_id: ProposalId) -> Row:
    """Return exactly what would be done. The read is recorded in the audit trail."""
    return store.proposal(proposal_id)


def _state(row: Row, _: Row) -> verbs.Text:
    yield f"proposal {row['id'].hex[:8]} is {row['state']}"
    yield from _next(row)


def _next(row: Row) -> verbs.Text:
    short = row["id"].hex[:8]
    noun, _, verb = row["verb"].partition(".")
    noun, target = registry.ALIASES.get(noun, noun), row["target"].partition(" ")[2]
    match row["state"]:
        case "planned":
            yield "a second person approves it with"
            yield f"  holdfast proposal approve {short} --reason TEXT"
        case "approved":
            yield "to apply it"
            last = f" {last_word(target)}" if target else ""
            yield f"  holdfast {noun} {verb} --proposal {short} --reason TEXT{last}"


@GROUP.verb(
    "approve",
    changes=True,
    help="Approve, as a second person, what another person proposed. See `show` for its details.",
    text=_state,
    least=AccessRole.ADMIN,
    route=verbs.Route("Approve what another person proposed.", "/{proposal_id}/approve"),
    result=ListedProposal,
)
def approve_proposal(store: Proposals, proposal_id: ProposalId, reason: verbs.Reason) -> Row:
    """Approve as a second person. All tokens and logins of one owner count as one person."""
    return store.approve(proposal_id, reason)


@GROUP.verb(
    "cancel",
    changes=True,
    help="Cancel a proposal, approved or not.",
    text=_state,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Cancel a proposal.", "/{proposal_id}/cancel"),
    result=ListedProposal,
)
def cancel_proposal(store: Proposals, proposal_id: ProposalId, reason: verbs.Reason) -> Row:
    """Cancel it, approved or not."""
    return store.cancel(proposal_id, reason)
