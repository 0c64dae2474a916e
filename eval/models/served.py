"""A server with OpenAI's API: its own template, parsers and kernels, as in production."""

from types import TracebackType
from typing import Self

from core import endpoint
from core.endpoint import Answer, Endpoint, Question, Refusal
from core.errors import UserError


class ServedModel:
    """A served model; an async context manager, used in the event loop that entered it."""

    def __init__(self, server: Endpoint) -> None:
        self.endpoint = server
        self.name = f"{server.model}, served"
        self.parser = "the server's own"
        self._session = endpoint.Session(server)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, trace)

    async def ask(self, question: Question) -> Answer:
        """As `eval.models.Model`."""
        answer = await self._session.ask(question)
        if isinstance(answer, Refusal):
            raise UserError(f"{self.endpoint}: {answer.reason}")
        return answer
