"""What needs a person, as the API shows it."""

from typing import Annotated

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs


class Need(TypedDict):
    """Something that needs a person."""

    kind: str
    count: Annotated[verbs.Count, verbs.Doc("Counted to 100,000.")]
    sentence: str
    command: Annotated[str, verbs.Doc("The command to start with.")]
