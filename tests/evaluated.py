"""A run whose checkpoints were evaluated: samples, manifests and verdicts as the stages write them.

No model runs: the samples are written here, by the share of each row that a checkpoint gets right.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core import artifacts, chat, rules, verdicts
from core import profile as profiles
from core.chat import Message, Row
from eval import evaluations, outcomes, verdict

TOOL = chat.tool(
    "mcp__git__git_log",
    "Shows commits",
    {"type": "object", "properties": {"repo_path": {"type": "string"}}, "required": ["repo_path"]},
)
SINGLE = {"mcp_calls": 200, "synonyms": 100, "no_tool": 60, "recovery": 40, "replay": 150}
"""Held-out rows of one turn by bucket."""
GENERAL, KNOWN_LOSS = 10, 3.0
"""General questions, and what every checkpoint loses on them."""
SKILLS = {"crear-rama": 16, "revisar-cambios": 15, "informe-historial": 9}
"""And rollouts by skill."""
HELD_OUT_SKILLS = ("informe-historial",)
OUT = Path("out/one")
THINKING_OFF, NEAR, LIVE = 50, 4, {"live-git": None, "live-crear-rama": "crear-rama"}


@dataclass(frozen=True)
class Ability:
    """What a checkpoint can do: the share that it gets right by row, and its mean loss."""

    right: Mapping[str, float]
    loss: float


BASE = Ability({"no_tool": 0.32, "recovery": 0.08, "replay": 0.88, "near_miss": 1.0}, 1.2)
MERGED = Ability(
    {
        "mcp_calls": 0.795, "synonyms": 0.44, "no_tool": 0.5, "recovery": 0.8, "replay": 0.85,
        "thinking_off": 0.7, "skills": 0.35, "near_miss": 0.75, "live": 0.5,
    },
    0.12,
)  # fmt: skip
NVFP4 = Ability({**MERGED.right, "mcp_calls": 0.79, "synonyms": 0.43, "skills": 0.375}, 0.124)


# ---- what a checkpoint was asked, and what it did -------------------------------------------------


def held_out() -> list[Row]:
    """The dataset's held-out rows."""
    due = chat.call("mcp__git__git_log", {"repo_path": "web/api"}, think="Hay que mirar el historial.")
    asked = [chat.user("¿Qué commits hay en web/api?"), due]
    none = [chat.user("Gracias, eso es todo."), chat.say("De nada.", think="Nada que hacer.")]
    task = [chat.user("Crea la rama fix/login en web/api desde main."), *rollout("", "")[0]]
    near = [chat.user("¿En qué rama estoy?"), chat.say("En main.", think="No pide crear nada.")]

    def rows(name: str, bucket: str, count: int, turns: list[Message], skill: str | None) -> Iterator[Row]:
        for i in range(count):
            own = f"{name}-{i:03}"
            yield Row(
                id=own, bucket=bucket, group=own, split="eval", messages=turns, tools=[TOOL], skill=skill
            )

    made: list[Row] = list(rows("general", "general", GENERAL, none, None))
    for bucket, count in SINGLE.items():
        made += rows(bucket, bucket, count, none if bucket == "no_tool" else asked, None)
    for skill, count in SKILLS.items():
        made += rows(skill, "skills", count, task, skill)
        made += rows(f"near-{skill}", "near_miss", NEAR, near, skill)
    return made


def rollout(broken: str, said: str) -> tuple[list[Message], list[dict[str, Any]]]:
    """The trace of a task in which this rule breaks (blank: none), and its findings.

    `informe` breaks at the end, by what is not there; the others in the first and in the second turn.
    """

    def call(name: str, **arguments: Any) -> Message:
        return chat.call(f"mcp__git__{name}", arguments, think=f"Sigo la skill. {said}")

    trace = [
        call("git_status", repo_path="web/api"),
        chat.result(f"On branch main, nothing to commit {said}"),
        call("git_create_branch", repo_path="web/api", branch_name="fix/login"),
        chat.result("Created branch fix/login"),
        call("git_checkout", branch_name="fix/login"),
        chat.result("Switched to branch fix/login"),
        chat.say(f"## Rama\nfix/login\n\n## Estado\nLista. {said}", think="Ya está."),
    ]
    if broken == "informe":
        del trace[-1]
    turns = len(chat.assistant_turns(trace))
    breaks = {"pasos": (0, 1), "base-indicada": (2, 2), "informe": (None, turns)}
    findings = []
    for rule in (*breaks, "idioma"):
        position, turn = breaks[rule] if rule == broken else (None, turns)
        kept = rules.NOT_JUDGED if rule == "idioma" else rules.HOLDS
        findings.append(
            {
                "rule": rule,
                "verdict": rules.BROKEN if rule == broken else kept,
                "position": position,
                "turn": turn,
                "reason": f"nowhere: {{say: {rule}}} {said}" if rule == broken else "",
            }
        )
    return trace, findings


def samples(able: Ability, said: str) -> list[dict[str, Any]]:
    """Every measurement of every row; `said` stands in all that the model wrote."""
    made: list[dict[str, Any]] = []
    for row in held_out():
        about = {"id": row.id, "bucket": row.bucket, "skill": row.skill}
        number = int(row.id[-3:])
        loss = KNOWN_LOSS if row.bucket == "general" else able.loss
        made.append({"kind": "loss", **about, "loss": loss * (0.8 + number % 5 / 10)})
        if row.bucket in SINGLE:
            right = number < able.right.get(row.bucket, 0) * SINGLE[row.bucket]
            made.append({"kind": "tool_calls", **about, **_answer(row.bucket, number, right, said)})
        if row.bucket == "mcp_calls" and number < THINKING_OFF:
            right = number < able.right.get("thinking_off", 0) * THINKING_OFF
            made.append({"kind": "thinking_off", **about, **_answer(row.bucket, number, right, said)})
        if row.bucket == "skills":
            right = number < able.right.get("skills", 0) * SKILLS[row.skill or ""]
            breaks = ("pasos", "base-indicada", "informe") if able.right.get("skills") else ("pasos",)
            made.append({"kind": "skills", **about, **_followed(breaks[number % len(breaks)], right, said)})
        if row.bucket == "near_miss":
            right = number < able.right.get("near_miss", 0) * NEAR
            why = "" if right else f"started the procedure: git_status {said}"
            own = {"trace": rollout("", said)[0], "right": right, "explanation": why}
            made.append({"kind": "near_miss", **about, **own})
    for number, (name, skill) in enumerate(LIVE.items()):
        right = number < able.right.get("live", 0) * len(LIVE)
        found = _followed("base-indicada", right, said)
        if skill is None:
            found = {key: found[key] for key in ("trace", "right", "explanation")}
        about = {"id": name, "bucket": "live", "skill": skill, "server": "git"}
        made.append({"kind": "live", **about, **found})
    return made


def _answer(bucket: str, number: int, right: bool, said: str) -> dict[str, Any]:
    due = ("wrong values", "no call", "dead turn")[number % 3]
    fault = "" if right else ("needless call" if bucket == "no_tool" else due)
    message = chat.say("" if fault == "dead turn" else f"Claro. {said}", think=f"Pienso. {said}")
    if fault in ("wrong values", "needless call"):
        message = chat.call("mcp__git__git_log", {"repo_path": f"web {said}"}, think="Lo miro.")
    explanation = f"{fault}: {{'repo_path': 'web'}} {said}" if fault else ""
    return {
        "message": message,
        "right": right,
        "fault": fault,
        "due": bucket != "no_tool",
        "explanation": explanation,
    }


def _followed(rule: str, right: bool, said: str) -> dict[str, Any]:
    trace, findings = rollout("" if right else rule, said)
    broken = next((one for one in findings if one["verdict"] == rules.BROKEN), None)
    return {
        "trace": trace,
        "right": right,
        "explanation": f"{rule}: {broken['reason']}" if broken else "",
        "findings": findings,
        "turns": len(chat.assistant_turns(trace)),
    }


# ---- what the stages leave -----------------------------------------------------------------------


def artefact(path: Path, kind: str, files: dict[str, str], **facts: Any) -> dict[str, str]:
    """An artefact of these files; what names it as an input of another."""
    with artifacts.create(
        path, kind=kind, profile="tiny", run="one", settings=facts.get("settings", {}),
        inputs=facts.get("inputs", {}),
    ) as draft:  # fmt: skip
        for name, text in files.items():
            (draft.path / name).write_text(text, encoding="utf-8")
        draft.counts, draft.backend = facts.get("counts", {}), facts.get("backend", {})
    return artifacts.as_input(path, artifacts.require(path, "all"))


def lines(found: list[Any]) -> str:
    """JSON, an object a line."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in found)


class Run:
    """A run of PROFILE=tiny in the current directory, with a base, an adapter and a merged checkpoint.

    `said` stands in every text that the model wrote.
    """

    words = ("PROFILE=tiny", "RUN=one", "MODELS_DIR=models")

    def __init__(self, said: str = "") -> None:
        self.said = said
        self.found: dict[str, outcomes.Outcomes] = {}
        base = artefact(Path("models/tiny"), "checkpoint", {"w": "base"})
        rows = lines([asdict(row) for row in held_out()])
        counts = {"train": {"mcp_calls": 3}, "eval": {"mcp_calls": 2}, "dropped": {}}
        seeds = {"DATA_SEED": 0, "EVAL_SEED": 3}
        self.dataset = artefact(
            Path("data/tiny/dataset"), "dataset", {"eval.jsonl": rows}, counts=counts, settings=seeds
        )
        adapter = self._train({"base": base, "dataset": self.dataset})
        merged = artefact(Path("models/one/merged"), "checkpoint", {"w": "m"}, inputs={"adapter": adapter})
        self._evaluate("base", base, BASE)
        self._evaluate("merged", merged, MERGED)
        self._judge("merged", merged)

    def quantize(self, able: Ability = NVFP4) -> None:
        """An NVFP4 checkpoint, forced, with its evaluation and verdict."""
        kept = {"signal": 0.987, "noise": 0.35, "output": 0.08}
        sizes = {"bytes": 6_543_210, "token_bytes": 1_234_567, "activation_scales": "production's"}
        counts = {
            "forced": True,
            "made": "delta",
            "choices": [{"choice": name, **kept, **sizes} for name in ("delta", "full")],
            "retention": {"self_attn.q_proj": {"nvfp4": {"change": 0.4, **kept}}},
        }
        nvfp4 = artefact(Path("models/one/nvfp4"), "checkpoint", {"w": "q"}, counts=counts)
        copy = artefact(Path("models/one/nvfp4-bf16"), "checkpoint", {"w": "d"}, inputs={"nvfp4": nvfp4})
        self._evaluate("nvfp4", copy, able)
        self._judge("nvfp4", nvfp4)

    def _train(self, inputs: dict[str, dict[str, str]]) -> dict[str, str]:
        steps = [{"step": i, "loss": 0.05 + 2 / i + (i % 7) / 100} for i in range(1, 301)]
        looks = [{"step": i, "eval_loss": 0.1 + 2 / i} for i in range(50, 301, 50)]
        counts = {
            "samples": 1199,
            "tokens": {"labelled": 89394},
            "tokens_per_second": 1234,
            "steps": 300,
            "modules": 30,
            "trainable_parameters": 135424,
            "first_loss": 2.0,
            "last_loss": 0.05,
            "peak": {"host_mb": 1858, "gpu_mb": 0},
            "predicted_peak_mb": 1790,
            "measured_peak_mb": 1858,
        }
        made = artefact(
            Path("out/one/adapter"),
            "adapter",
            {"loss.jsonl": lines(steps)},
            settings={"LORA_RANK": 16, "LORA_ALPHA": 32, "BACKEND": "", "TRAIN_SEED": 7},
            inputs=inputs,
            counts=counts,
            backend={"name": "plain", "reasons": {"unsloth": "no <CUDA> device"}},
        )
        Path("out/one/metrics.jsonl").write_text(lines([*steps, *looks]), encoding="utf-8")
        return made

    def _evaluate(self, name: str, checkpoint: dict[str, str], able: Ability) -> None:
        found = samples(able, self.said)
        self.found[name] = outcomes.outcomes(found, HELD_OUT_SKILLS)
        inputs = {"checkpoint": checkpoint, "dataset": self.dataset}
        losses = [one for one in found if one["kind"] == "loss"]
        answers = [one for one in found if one["kind"] != "loss"]
        who = {"judged_by": "core/toolcalls.py", "model": "transformers", "seconds": {"answers": 61.5}}
        for path, own, facts in (
            (evaluations.losses_dir(OUT, name), losses, {}),
            (evaluations.answers_dir(OUT, name), answers, who),
        ):
            artefact(
                path,
                "evaluation",
                {evaluations.SAMPLES: lines(own)},
                settings={"EVAL_LIMIT": 0, "HELD_OUT_SKILLS": list(HELD_OUT_SKILLS)},
                inputs=inputs,
                counts=outcomes.counts(outcomes.outcomes(own, HELD_OUT_SKILLS)) | facts,
            )

    def _judge(self, name: str, checkpoint: dict[str, str]) -> None:
        judged = verdict.judge(profiles.load("tiny").gates, self.found)
        inputs = {"checkpoint": checkpoint}
        for one in self.found:
            role = {"base": "baseline", name: "measured"}.get(one, one)
            for suffix, path in (
                ("", evaluations.answers_dir(OUT, one)),
                ("-loss", evaluations.losses_dir(OUT, one)),
            ):
                inputs[role + suffix] = artifacts.as_input(path, artifacts.require(path, "eval"))
        path = verdicts.directory(OUT, name)
        artefact(path, "verdict", {verdicts.FILE: json.dumps(judged)}, inputs=inputs)
