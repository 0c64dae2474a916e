"""Models whose answers are planted, and what the gates say of them."""

import json
from collections.abc import Mapping
from typing import Any

from core import rules
from core.profile import Gate
from eval import outcomes, verdict
from eval.gates import tool_calls
from eval.outcomes import Outcomes, Sample

GATES = {
    "loss": Gate(threshold=0.5, delta=0.02),
    "tool_calls": Gate(threshold=0.8, delta=0.02),
    "skills": Gate(threshold=0.8, delta=0.02),
    "replay": Gate(threshold=0.8, delta=0.15),
    "live": Gate(threshold=0.5, delta=0.02),
}
ROLLOUTS = 100
RULES = ("pasos", "base", "informe", "rama")


def model(
    *,
    calls: int = 50,
    needless: int = 4,
    broken: Mapping[str, int] | None = None,
    unasked: int = 3,
    replay: int = 90,
    nats: float = 1.3,
    live: int | None = None,
) -> list[Sample]:
    """What a model does on 100 rows of each kind, in which so many go right or wrong.

    `needless` calls where none is due, rollouts in which a rule is `broken`, skills started `unasked`.
    """
    broken = {"pasos": 80, "base": 10} if broken is None else broken
    made: list[Sample] = []
    for number in range(ROLLOUTS):
        for bucket in ("mcp_calls", "no_tool", "skills", "near_miss", "replay"):
            about = {"id": f"{bucket}-{number}", "bucket": bucket, "skill": f"skill-{number % 2}"}
            made.append({"kind": "loss", **about, "loss": nats * (0.9 + number / 500)})
            if bucket in ("mcp_calls", "replay"):
                right = number < (calls if bucket == "mcp_calls" else replay)
                fault = "" if right else tool_calls.NO_CALL
                made.append({"kind": "tool_calls", **about, "right": right, "fault": fault, "due": True})
            elif bucket == "no_tool":
                fault = tool_calls.NEEDLESS if number < needless else ""
                made.append({"kind": "tool_calls", **about, "right": not fault, "fault": fault, "due": False})
            elif bucket == "near_miss":
                made.append({"kind": "near_miss", **about, "right": number >= unasked})
            else:
                breaks = [rule for rule in RULES if number < broken.get(rule, 0)]
                findings = [
                    {"rule": rule, "verdict": rules.BROKEN if rule in breaks else rules.HOLDS}
                    for rule in RULES
                ]
                made.append({"kind": "skills", **about, "right": not breaks, "findings": findings})
        if live is not None and number < 20:
            about = {"id": f"live-{number}", "bucket": "live", "skill": None}
            made.append({"kind": "live", **about, "right": number < live})
    return made


def of(samples: list[Sample]) -> Outcomes:
    return outcomes.outcomes(samples, held_out=("skill-1",))


def good(**planted: Any) -> Outcomes:
    """A model that has learned what it should, but for what is planted."""
    return of(model(**{"calls": 90, "broken": {"pasos": 8}, "nats": 0.3, "replay": 88, **planted}))


BASE = of(model())


def judge(*checkpoints: Outcomes) -> dict[str, Any]:
    """The verdict, as it is read back."""
    names = ("base", "merged", "nvfp4")
    found = verdict.judge(GATES, dict(zip(names, checkpoints, strict=False)))
    return json.loads(json.dumps(found, allow_nan=False))
