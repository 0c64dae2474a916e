"""Whether a server serves what it was given: it answers, talks sense, calls a tool, drafts tokens, how fast.

Asked as vLLM 0.33 answers: OpenAI's API below `/v1`, Prometheus counters at `/metrics`.
"""

import contextlib
import json
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.profile import Health
from core.progress import Progress
from quant.deploying import nonsense

if TYPE_CHECKING:
    import httpx

TOKEN = "ENDPOINT_TOKEN"
"""The environment variable with the bearer token, for a server that wants one."""
COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts",
    "drafted": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
}
MOST_SECONDS_TO_STOP = 30.0
LONGEST_PAUSE = 2.0
"""Seconds between two looks at a server that is starting."""
LONGEST_ANSWER = 300.0
"""Seconds that one answer may take."""
PARSER = "is it started with --enable-auto-tool-choice --tool-call-parser qwen3_coder?"


class Unhealthy(Exception):
    """What is wrong with the server, in one line."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A healthy server in figures."""

    ready_seconds: float
    """Until it listed its models."""
    tokens_per_second: float
    drafts: int | None
    """Drafts that the MTP head made for our questions; None where the profile asks for none."""
    acceptance: float | None
    """Share of the drafted tokens that the model kept."""

    def __str__(self) -> str:
        drafting = (
            f", {self.drafts} drafts, {self.acceptance:.0%} of their tokens kept" if self.drafts else ""
        )
        return (
            f"healthy: ready after {self.ready_seconds:.0f} s, chat and tool call right,"
            f" {self.tokens_per_second:.1f} tokens/s{drafting}"
        )


def require_address(url: str) -> None:
    """UserError where SERVER is no address or wants another token; a server that is down is none."""
    import httpx

    try:
        status = httpx.get(f"{_trim(url)}/models", headers=_headers(), timeout=10.0).status_code
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise UserError(f"SERVER={url}: no address; write http://<host>:<port>/v1") from None
    except httpx.HTTPError:
        return
    if status in (401, 403):
        raise UserError(f"SERVER={url} refused us with HTTP {status}; export {TOKEN}=<its key>")
    if status == 404:
        raise UserError(f"SERVER={url}: HTTP 404; it should end in /v1")


def require_silent(url: str) -> None:
    """UserError where the server goes on answering after STOP_CMD: it would pass for the new one."""
    import httpx

    start = time.monotonic()
    with contextlib.suppress(httpx.HTTPError):
        while httpx.get(f"{_trim(url)}/models", headers=_headers(), timeout=10.0).status_code == 200:
            if time.monotonic() - start > MOST_SECONDS_TO_STOP:
                raise UserError(
                    f"SERVER={url} still answers after STOP_CMD: is it the server that this stops?"
                )
            time.sleep(0.05)


def check(url: str, wanted: Health, what: str) -> Measured:
    """Wait for the server at `url` and ask it what the profile wants; Unhealthy where it fails one."""
    import httpx

    url = _trim(url)
    with httpx.Client(headers=_headers(), timeout=LONGEST_ANSWER) as client:
        start = time.monotonic()
        model = _wait(client, url, wanted.minutes * 60, what)
        ready, before = time.monotonic() - start, _counters(client, url)
        _chat(client, url, model, wanted)
        _tool_call(client, url, model, wanted)
        speed = _chat(client, url, model, wanted)  # once more: the first questions warmed it up
        drafts, acceptance = _drafting(before, _counters(client, url), wanted.acceptance)
    return Measured(
        ready_seconds=round(ready, 1),
        tokens_per_second=round(speed, 1),
        drafts=drafts,
        acceptance=acceptance,
    )


def _wait(client: "httpx.Client", url: str, seconds: float, what: str) -> str:
    """The name of the model, as soon as the server lists it."""
    import httpx

    progress = Progress(f"{what}: seconds until the server answers", round(seconds))
    start, pause = time.monotonic(), 0.05
    reason = ""
    while (waited := time.monotonic() - start) < seconds:
        try:
            response = client.get(f"{url}/models", timeout=10.0)
            if response.status_code == 200:
                model = response.json()["data"][0]["id"]
                progress.close()
                return model
            reason = f"HTTP {response.status_code}"
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
        except (ValueError, LookupError, TypeError):
            reason = "it lists no models"
        progress.step(round(waited) - progress.done, note=reason)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    raise Unhealthy(f"{url} did not come up within {seconds:g} s ({reason})")


def _chat(client: "httpx.Client", url: str, model: str, wanted: Health) -> float:
    """Ask the profile's question; tokens a second."""
    start = time.monotonic()
    message, tokens = _complete(client, url, model, wanted, wanted.question)
    seconds = time.monotonic() - start
    thought = message.get("reasoning") or message.get("reasoning_content") or ""
    text = message.get("content") or ("" if wanted.answer else thought)
    fault = nonsense.fault_in(text) or nonsense.fault_in(thought or text)
    if not fault and wanted.answer.casefold() not in text.casefold():
        fault = f"no {wanted.answer!r} in it"
    if fault:
        raise Unhealthy(f"asked {wanted.question!r} the server answers {text[:80]!r}: {fault}")
    return tokens / seconds


def _tool_call(client: "httpx.Client", url: str, model: str, wanted: Health) -> None:
    """Ask for the profile's tool, through the server's own parser."""
    import jsonschema

    message, _ = _complete(client, url, model, wanted, wanted.request, tools=[wanted.tool])
    asked, function = f"asked {wanted.request!r}", wanted.tool["function"]
    calls, text = message.get("tool_calls") or [], message.get("content") or ""
    if not calls and ("<tool_call>" in text or "<function=" in text):
        raise Unhealthy(f"{asked} the server leaves the tool call in the text, unparsed; {PARSER}")
    if not calls:
        raise Unhealthy(f"{asked} the server calls no tool but says {text[:80]!r}")
    try:
        call = calls[0]["function"]
        if call["name"] != function["name"]:
            raise Unhealthy(f"{asked} the server calls {call['name']!r}, expected {function['name']!r}")
        jsonschema.validate(json.loads(call["arguments"]), function["parameters"])
    except (LookupError, TypeError, ValueError, jsonschema.ValidationError) as error:
        reason = str(error).splitlines()[0][:120]
        raise Unhealthy(f"{asked} the server sends a call that is none ({reason}); {PARSER}") from None


def _complete(
    client: "httpx.Client", url: str, model: str, wanted: Health, text: str, **more: Any
) -> tuple[dict[str, Any], int]:
    """The model's turn and its number of tokens."""
    import httpx

    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": wanted.tokens,
        "temperature": 0,
        "seed": 0,
        **more,
    }
    try:
        response = client.post(f"{url}/chat/completions", json=body)
        if response.status_code != 200:
            hint = f"; {PARSER}" if "tool" in response.text else ""
            raise Unhealthy(f"asked {text!r}: HTTP {response.status_code}, {_one_line(response.text)}{hint}")
        found = response.json()
        message = found["choices"][0]["message"]
        return message, int(found["usage"]["completion_tokens"])
    except httpx.HTTPError as error:
        raise Unhealthy(f"asked {text!r} the server breaks off ({error or type(error).__name__})") from None
    except (ValueError, LookupError, TypeError):
        raise Unhealthy(f"asked {text!r}: not a chat completion") from None


def _counters(client: "httpx.Client", url: str) -> dict[str, float]:
    """The sums of vLLM's counters of speculative decoding, those that there are."""
    import httpx

    try:
        text = client.get(url.removesuffix("/v1") + "/metrics").text
    except httpx.HTTPError:
        return {}
    found = {}
    for name, counter in COUNTERS.items():
        values = re.findall(rf"^{counter}(?:_total)?(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE)
        if values:
            found[name] = sum(map(float, values))
    return found


def _drafting(
    before: dict[str, float], after: dict[str, float], least: float | None
) -> tuple[int | None, float | None]:
    """Drafts and acceptance between two looks at the counters; Unhealthy where they are fewer than wanted."""
    if least is None:
        return None, None
    made = {name: after.get(name, 0) - before.get(name, 0) for name in COUNTERS}
    if made["drafts"] <= 0 or made["drafted"] <= 0:
        raise Unhealthy(
            "the server drafts no tokens; is it started with --speculative-config"
            ' \'{"method": "mtp", "num_speculative_tokens": 1}\', and are its /metrics open?'
        )
    acceptance = made["accepted"] / made["drafted"]
    if acceptance < least:
        raise Unhealthy(f"only {acceptance:.0%} of the drafted tokens are kept, expected {least:.0%} or more")
    return int(made["drafts"]), round(acceptance, 3)


def _headers() -> dict[str, str]:
    token = os.environ.get(TOKEN, "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _trim(url: str) -> str:
    return url.rstrip("/")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:160]
