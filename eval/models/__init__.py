"""Who answers: a checkpoint in this process, or a server; both take a `core.endpoint.Question`."""

from typing import Protocol

from core.endpoint import Answer, Question


class Model(Protocol):
    """What the gates ask."""

    name: str
    """What it is, for the log and the report."""
    parser: str
    """What read its tool calls."""

    async def ask(self, question: Question) -> Answer:
        """The model's turn; UserError where there will be none."""
        ...
