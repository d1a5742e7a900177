"""Proposals: changes that one person proposes and an administrator approves as a second person."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import Field

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Admin, Operator, Viewer
from holdfast.dispatcher.api.requests import Because, Limit, Moment, Text
from holdfast.dispatcher.api.responses import Json, ResponseModel, Time
from holdfast.dispatcher.operators.proposals.store import Proposals

router = APIRouter(prefix="/proposals", tags=["proposals"])

ProposalId = Annotated[UUID, Path(description="The proposal's id.")]


class ListedProposal(ResponseModel):
    """A proposed change."""

    id: UUID
    verb: str = Field(description="The action, as the audit trail names it.")
    target: str
    state: str = Field(description="planned, approved, applied or cancelled.")
    sha256: str = Field(description="SHA-256 of verb, target and detail as canonical JSON, in hex.")
    reason: str
    actor: str
    person: str = Field(
        description="The person who proposed it, independent of the token or login used."
    )
    created_at: Time
    approved_by: str | None
    approved_by_person: str | None
    approved_at: Time | None
    applied_by: str | None
    applied_at: Time | None
    cancelled_by: str | None
    cancelled_at: Time | None


class Proposal(ListedProposal):
    """A proposed change with all its details."""

    detail: Json = Field(description="Exactly what is done once it is approved. Immutable.")


class ProposalPage(ResponseModel):
    """Proposals, the newest first."""

    proposals: list[ListedProposal]
    next_before: Time | None


@router.get("", summary="List proposals.")
def list_proposals(
    session: Viewer,
    target: Annotated[Text | None, Query(description="Only proposals for this target.")] = None,
    open: Annotated[bool, Query(description="Only open ones; false: all.")] = True,  # noqa: A002 - the parameter's name
    limit: Limit = 50,
    before: Annotated[
        Moment | None, Query(description="Only proposals created before this time.")
    ] = None,
) -> ProposalPage:
    """Return proposals without their details, the newest first."""
    with session.open(Proposals) as store:
        rows = store.proposals(limit=limit, before=before, target=target, open_=open)
    older = rows[-1]["created_at"] if len(rows) == limit else None
    return ProposalPage.model_validate({"proposals": rows, "next_before": older})


@router.get("/{proposal_id}", summary="Show a proposal with all its details.")
def show_proposal(session: Operator, proposal_id: ProposalId) -> Proposal:
    """Return exactly what would be done. The read is recorded in the audit trail."""
    with session.open(Proposals) as store:
        row = store.proposal(proposal_id)
    bodies.note(session, "proposal.read", row["target"], proposal=proposal_id)
    return Proposal.model_validate(row)


@router.post("/{proposal_id}/approve", summary="Approve what another person proposed.")
def approve_proposal(session: Admin, proposal_id: ProposalId, given: Because) -> ListedProposal:
    """Approve as a second person. All tokens and logins of one owner count as one person."""
    with session.open(Proposals) as store:
        return ListedProposal.model_validate(store.approve(proposal_id, given.reason))


@router.post("/{proposal_id}/cancel", summary="Cancel a proposal.")
def cancel_proposal(session: Operator, proposal_id: ProposalId, given: Because) -> ListedProposal:
    """Cancel it, approved or not."""
    with session.open(Proposals) as store:
        return ListedProposal.model_validate(store.cancel(proposal_id, given.reason))
