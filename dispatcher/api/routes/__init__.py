"""The resources of the API, one file each."""

from fastapi import APIRouter

from dispatcher.api.routes.changes import CHANGES
from dispatcher.api.routes.reads import READS

ROUTERS: tuple[APIRouter, ...] = (*READS, *CHANGES)
"""In the order in which OpenAPI lists them."""
