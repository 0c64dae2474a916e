"""An OpenAI-compatible server, asked many things at once.

A busy or stalled server is asked again, later and later; one that is not what ENDPOINT says, or that has
stopped answering, ends the stage. What was answered until then has been handed over.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.chat import Message, Tool
from core.errors import UserError
from core.progress import Progress

if TYPE_CHECKING:
    import httpx

TOKEN = "ENDPOINT_TOKEN"
"""The environment variable with the bearer token, for a server that wants one."""
AT_ONCE = 8
"""Questions under way: enough to keep a server's batch busy, few enough for one of small memory."""
TRIES = 5
GIVEN_UP_IN_A_ROW = 5
"""So many questions without an answer, one after the other, are a dead server."""
BUSY = (408, 425, 429, 500, 502, 503, 504)
LONGEST_WAIT = 60.0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A server and the model that it serves."""

    setting: str
    """Make's name of the setting that names it."""
    url: str
    """Up to and with `/v1`."""
    model: str
    token: str = field(default="", repr=False)
    seconds: float = 600.0
    """The longest that one answer may take."""
    wait: float = 1.0
    """Seconds before the second try; doubled with each more."""

    def __str__(self) -> str:
        return f"{self.setting}={self.url}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A conversation whose next turn is the model's."""

    messages: list[Message]
    tools: list[Tool]
    max_tokens: int
    seed: int = 0
    thinking: bool = True
    """Whether the model thinks before it answers."""


@dataclass(frozen=True)
class Answer:
    """The model's turn."""

    message: Message
    finish: str
    """The server's reason to stop: `stop`, `tool_calls`, `length`."""


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer, in one line."""

    reason: str


def connect(url: str, setting: str = "ENDPOINT") -> Endpoint:
    """The server at `url`, with the first model that it lists; UserError naming `setting` where none is."""
    import httpx

    url, token = url.rstrip("/"), os.environ.get(TOKEN, "")
    shown = f"{setting}={url}"
    try:
        response = httpx.get(f"{url}/models", headers=_headers(token), timeout=30.0)
        _refuse(shown, response.status_code)
        return Endpoint(setting=setting, url=url, model=response.json()["data"][0]["id"], token=token)
    except httpx.InvalidURL:
        raise UserError(f"{shown}: no address; write http://<host>:<port>/v1") from None
    except httpx.HTTPError as error:
        raise UserError(f"{shown}: no answer ({error or type(error).__name__}); start it") from None
    except (ValueError, LookupError, TypeError):
        raise UserError(f"{shown}: lists no models; is this an OpenAI-compatible server?") from None


def ask_all(
    endpoint: Endpoint,
    questions: Sequence[Question],
    take: Callable[[int, Answer | Refusal], None],
    *,
    what: str,
) -> None:
    """Ask every question, AT_ONCE at a time; `take(number, answer)` is called as each comes back.

    Raises UserError where the server refuses the token, is not an OpenAI-compatible one, or answers nothing
    any more.
    """
    import anyio

    progress = Progress(what, len(questions))
    failure: UserError | None = None

    async def ask_each() -> None:
        async with Session(endpoint) as session, anyio.create_task_group() as group:

            async def ask_or_stop(number: int) -> None:
                nonlocal failure
                try:
                    take(number, await session.ask(questions[number]))
                    progress.step()
                except UserError as error:
                    failure = failure or error
                    group.cancel_scope.cancel()

            for number in range(len(questions)):
                group.start_soon(ask_or_stop, number)

    anyio.run(ask_each)
    if failure:
        raise failure
    progress.close()


class Session:
    """A server under questions, AT_ONCE at a time; an async context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        import anyio
        import httpx

        self._endpoint, self._given_up = endpoint, 0
        self._client = httpx.AsyncClient(headers=_headers(endpoint.token), timeout=endpoint.seconds)
        self._limiter = anyio.CapacityLimiter(AT_ONCE)

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, question: Question) -> Answer | Refusal:
        """The model's turn; UserError where the server refuses the token or has stopped answering."""
        async with self._limiter:
            if self._given_up >= GIVEN_UP_IN_A_ROW:
                raise UserError(f"{self._endpoint} stopped answering")
            answer = await _ask(self._client, self._endpoint, question)
        self._given_up = self._given_up + 1 if isinstance(answer, _GivenUp) else 0
        if isinstance(answer, _GivenUp) and self._given_up >= GIVEN_UP_IN_A_ROW:
            raise UserError(
                f"{self._endpoint} stopped answering ({answer.reason}); what it answered is kept: "
                "start it again, then the same command"
            )
        return answer


@dataclass(frozen=True)
class _GivenUp(Refusal):
    """The server itself did not answer, however often it was asked."""


async def _ask(client: "httpx.AsyncClient", endpoint: Endpoint, question: Question) -> Answer | Refusal:
    import anyio
    import httpx

    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": wire(question.messages),
        "max_tokens": question.max_tokens,
        "seed": question.seed,
        "chat_template_kwargs": {"preserve_thinking": True, "enable_thinking": question.thinking},
    }
    if question.tools:
        body["tools"] = question.tools
    reason = ""
    for attempt in range(TRIES):
        wait = min(endpoint.wait * 2**attempt, LONGEST_WAIT)
        try:
            response = await client.post(f"{endpoint.url}/chat/completions", json=body)
        except httpx.TimeoutException:
            reason = f"no answer within {endpoint.seconds:g} s"
        except httpx.TransportError as error:
            reason = f"{error or type(error).__name__}"
        else:
            if response.status_code not in BUSY:
                return _read(endpoint, response)
            reason = f"HTTP {response.status_code}"
            asked = response.headers.get("retry-after", "")
            wait = min(float(asked), LONGEST_WAIT) if asked.isdecimal() else wait
        if attempt < TRIES - 1:
            await anyio.sleep(wait)
    return _GivenUp(f"{reason}, {TRIES} times")


def _read(endpoint: Endpoint, response: "httpx.Response") -> Answer | Refusal:
    _refuse(str(endpoint), response.status_code)
    try:
        content = response.json()
    except ValueError:
        kind = response.headers.get("content-type", "no content type")
        raise UserError(f"{endpoint} answers {kind} instead of JSON; correct it") from None
    if response.status_code >= 400:
        return Refusal(f"HTTP {response.status_code}: {_one_line(content)}")
    try:
        choice = content["choices"][0]
        return Answer(read_message(choice["message"]), choice["finish_reason"] or "")
    except (LookupError, TypeError, ValueError, AttributeError):
        return Refusal(f"not a chat completion: {_one_line(content)}")


def _refuse(shown: str, status: int) -> None:
    if status in (401, 403):
        raise UserError(f"{shown} refused us with HTTP {status}; export {TOKEN}=<its key>")
    if status == 404:
        raise UserError(f"{shown}: HTTP 404; it should end in /v1")


def wire(messages: list[Message]) -> list[dict[str, Any]]:
    """Our messages as the API takes them: arguments as JSON text, calls and their results by id."""
    sent, waiting = [], []
    for position, message in enumerate(messages):
        out = dict(message)
        if message.get("tool_calls"):
            waiting = [f"call_{position}_{i}" for i in range(len(message["tool_calls"]))]
            out["tool_calls"] = [
                {
                    "id": name,
                    "type": "function",
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
                    },
                }
                for name, call in zip(waiting, message["tool_calls"], strict=True)
            ]
        elif message["role"] == "tool" and waiting:
            out["tool_call_id"] = waiting.pop(0)
        sent.append(out)
    return sent


def read_message(message: dict[str, Any]) -> Message:
    """An API's assistant message as ours. Raises ValueError, LookupError or TypeError where it is none.

    vLLM writes the thinking as `reasoning`, others as `reasoning_content`.
    """
    thought = message.get("reasoning") or message.get("reasoning_content") or ""
    read: Message = {
        "role": "assistant",
        "reasoning_content": thought.strip(),
        "content": (message.get("content") or "").strip(),
    }
    calls = []
    for call in message.get("tool_calls") or []:
        arguments = json.loads(call["function"]["arguments"] or "{}")
        if not isinstance(arguments, dict):
            raise TypeError(f"arguments of {call['function']['name']} are no object")
        function = {"name": call["function"]["name"], "arguments": arguments}
        calls.append({"type": "function", "function": function})
    return read | ({"tool_calls": calls} if calls else {})


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _one_line(content: Any) -> str:
    return " ".join(json.dumps(content, ensure_ascii=False).split())[:200]
