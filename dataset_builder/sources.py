"""What rows are made from, and the small acts that every bucket shares."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import chat, phrases, rules
from core.chat import Row, Tool
from core.rules import Rule
from dataset_builder.documents.agents import Agent
from dataset_builder.documents.near_misses import NearMiss
from dataset_builder.documents.plans import Plan
from dataset_builder.documents.procedures import Procedure
from dataset_builder.documents.skills import Scenario, Skill
from dataset_builder.documents.transcripts import Conversation
from dataset_builder.drawing import values
from dataset_builder.schemas import ServerInfo, ToolSchema
from dataset_builder.talking.requests import ToolRequests, one_of, slots_in

SYSTEMS = ("", "", "Eres un asistente útil.", "You are a helpful assistant.")


@dataclass(frozen=True)
class Sources:
    tools: dict[str, ToolSchema]
    """By `<server>.<tool>`."""
    requests: list[ToolRequests]
    scenarios: list[tuple[Skill, Scenario]]
    tools_shown: int
    skill_prompt: str
    held_out_skills: tuple[str, ...]
    servers: dict[str, ServerInfo] = field(default_factory=dict)
    """By name; what they say of themselves."""
    skills: list[Skill] = field(default_factory=list)
    near_misses: list[NearMiss] = field(default_factory=list)
    procedures: dict[str, Procedure] = field(default_factory=dict)
    """By skill."""
    rules: dict[str, list[Rule]] = field(default_factory=dict)
    """By skill."""
    drafts: Path = Path("rules")
    """Where the rules are of skills that have none beside their SKILL.md."""
    agents: list[Agent] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    conversations: list[Conversation] = field(default_factory=list)
    """Of the user's transcripts."""


@dataclass(frozen=True)
class Ask:
    """One request: what the user says and the call that answers it."""

    request: ToolRequests
    tool: ToolSchema
    wording: str
    text: str
    arguments: dict[str, Any]

    @property
    def key(self) -> str:
        """`<server>.<tool>`."""
        return f"{self.request.server}.{self.request.tool}"


def show(sources: Sources, keys: list[str], rng: random.Random) -> list[Tool]:
    """The tools of a prompt: those of `keys` and distractors up to the profile's number, shuffled."""
    others = [key for key in sources.tools if key not in keys]
    chosen = keys + rng.sample(others, max(0, min(sources.tools_shown - len(keys), len(others))))
    rng.shuffle(chosen)
    return [sources.tools[key].shown for key in chosen]


def asks(sources: Sources, rng: random.Random, split: str, wordings: str) -> Iterator[Ask]:
    """Endless requests with values of `split`: each wording of the list once a round, in a new order."""
    pairs = [(request, wording) for request in sources.requests for wording in request.wordings[wordings]]
    while True:
        rng.shuffle(pairs)
        for request, wording in pairs:
            yield ask(sources, request, one_of(wording, rng), rng, split)


def ask(sources: Sources, request: ToolRequests, wording: str, rng: random.Random, split: str) -> Ask:
    """A wording with values drawn for its slots; arguments in the order of the tool's schema."""
    slots = slots_in(wording)
    kinds = {slot: kind for slot, kind in request.values.items() if slot in slots}
    drawn = values.draw_distinct(kinds, rng, split)
    text = request_text(wording, drawn, rng, split)
    tool = sources.tools[f"{request.server}.{request.tool}"]
    return Ask(request, tool, wording, text, {name: drawn[name] for name in tool.properties if name in drawn})


def request_text(wording: str, drawn: dict[str, Any], rng: random.Random, split: str) -> str:
    """A wording with its values in place; in training often within a phrase that people put around it."""
    text = wording.format(**{slot: values.shown(value, rng) for slot, value in drawn.items()})
    return phrases.wrapped(text, phrases.is_spanish(wording), rng) if split == "train" else text


def call(ask: Ask, think: str = "") -> chat.Message:
    """The assistant turn that answers a request."""
    thought = f"{think} {thought_of(ask.tool)}".strip()
    return chat.call(ask.tool.shown_name, ask.arguments, think=thought)


def thought_of(tool: ToolSchema) -> str:
    """The short reasoning before a call."""
    return f"Use `{tool.server}__{tool.name}`."


def rules_elsewhere(sources: Sources, skill: Skill) -> dict[str, str]:
    """For a row's `meta`: the file of a skill's rules, where it is not beside SKILL.md."""
    file = rules.location(skill.path, skill.name, sources.drafts)
    return {} if file.parent == skill.path.parent else {"rules_file": str(file)}


def row(
    bucket: str,
    number: int,
    split: str,
    *,
    group: str,
    system: str,
    tools: list[Tool],
    messages: list[chat.Message],
    **more: Any,
) -> Row:
    """A dataset row; its id says bucket, split and number."""
    return Row(
        id=f"{bucket}-{split}-{number:05d}",
        bucket=bucket,
        group=group,
        split="train" if split == "train" else "eval",
        tools=tools,
        messages=chat.system(system) + messages,
        **more,
    )
