"""Rows of the user's own conversations: whole turns, known tools, sides apart."""

import random
from dataclasses import replace
from typing import Any

import pytest

from core import chat
from core.chat import Message, Row
from dataset_builder.buckets import transcripts
from dataset_builder.documents.transcripts import NO_RESULT, Conversation
from dataset_builder.sources import Sources
from dataset_builder.verifying import checks, rendering, split
from tests.five_servers import SERVERS, TOOLS

LOG = "mcp__gitea__list_branches"


def listed(owner: str, repo: str, text: str = "Dime qué ramas hay en {} ahora mismo") -> list[Message]:
    return [
        chat.user(text.format(f"«{owner}/{repo}»")),
        chat.call(LOG, {"owner": owner, "repo": repo}, think="Miro las ramas."),
        chat.result('[{"name": "main"}]'),
        chat.say("Solo está main.", think=""),
    ]


def conversation(name: str, messages: list[Message], *, sidechain: bool = False) -> Conversation:
    return Conversation(id=name, source=f"{name}.jsonl", messages=messages, sidechain=sidechain)


def sources(*conversations: Conversation) -> Sources:
    return Sources(
        tools=TOOLS,
        requests=[],
        scenarios=[],
        tools_shown=4,
        skill_prompt="body",
        held_out_skills=(),
        servers=SERVERS,
        conversations=list(conversations),
    )


def rows(source: Sources, side: str, count: int = 100) -> list[Row]:
    return transcripts.rows(source, random.Random(7), side, count)


def everywhere(source: Sources) -> list[Row]:
    return [row for side in ("train", "dev", "eval") for row in rows(source, side)]


def various(count: int = 24) -> list[Conversation]:
    """Conversations that have nothing in common: each asks in its own words for its own repository."""
    words = "ver saber leer mirar abrir sacar traer pedir dar listar contar tener".split()
    texts = [f"{words[n % 12]} {words[n // 2]} las ramas de {{}} número{chr(97 + n)}" for n in range(count)]
    return [conversation(f"s/{n}", listed(f"o{n}x", f"r{n}y", text)) for n, text in enumerate(texts)]


def test_a_conversation_is_kept_as_it_is_with_its_tools_and_distractors() -> None:
    messages = [*listed("acme", "web"), chat.user("¿Y está protegida?"), chat.say("No consta.", think="")]
    (row,) = everywhere(sources(conversation("p/1", messages)))
    assert row.messages == messages
    assert (row.group, row.source, row.meta["kind"]) == ("p/1", "p/1.jsonl", "conversation")
    # A turn without reasoning is no example of how a model that thinks begins its turn.
    assert row.train_turns == [0]
    assert LOG in checks.shown(row)
    assert len(row.tools) == 4
    assert checks.keep([row], sha256={}, rules_of={})[1] == []


def test_a_subagents_conversation_is_told_apart() -> None:
    (row,) = everywhere(sources(conversation("p/1", listed("acme", "web"), sidechain=True)))
    assert row.meta["kind"] == "subagent"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ([chat.user("Borra"), chat.call("Bash", {}, think=""), chat.result("")], "calls Bash"),
        ([chat.user("Sigue"), chat.call(LOG, {}, think=""), chat.result(NO_RESULT)], "without a result"),
        ([chat.user("Sigue"), chat.call(LOG, {}, think=""), chat.result("[]")], "without an answer"),
        ([chat.user("Sigue")], "without an answer"),
    ],
)
def test_it_ends_before_the_first_turn_that_cannot_be_taught(more: list[Message], reason: str) -> None:
    after = [chat.user("Gracias"), chat.say("De nada.", think="")]
    whole = sources(conversation("p/1", [*listed("acme", "web"), *more, *after]))
    (row,) = everywhere(whole)
    assert row.messages == listed("acme", "web")
    ((found, count),) = transcripts.left_out(whole).items()
    assert count == 1
    assert found.startswith("cut short: ")
    assert reason in found
    alone = sources(conversation("p/1", more), conversation("p/2", more))
    assert everywhere(alone) == []
    assert [(reason in found, n) for found, n in transcripts.left_out(alone).items()] == [(True, 2)]


def test_a_conversation_without_reasoning_teaches_nothing() -> None:
    source = sources(conversation("p/1", [chat.user("Hola"), chat.say("Hola.", think=" ")]))
    assert everywhere(source) == []
    assert transcripts.left_out(source) == {"no turn with reasoning": 1}


def test_sides_are_fixed_and_share_nothing() -> None:
    source = sources(*various())
    by_side = {side: rows(source, side) for side in ("train", "dev", "eval")}
    assert sum(map(len, by_side.values())) == len(source.conversations)
    assert all(by_side.values())
    assert split.leaks(by_side["train"], [*by_side["dev"], *by_side["eval"]]) == []
    backwards = replace(source, conversations=source.conversations[::-1])
    for side, found in by_side.items():
        assert {row.group for row in rows(backwards, side)} == {row.group for row in found}


@pytest.mark.parametrize("shared", ["repository", "request", "template"])
def test_what_is_shared_keeps_conversations_on_one_side(shared: str) -> None:
    def of(n: int) -> Conversation:
        same: dict[str, Any] = {
            "repository": listed("acme", "web", f"{chr(97 + n) * 5} las ramas {chr(98 + n) * 4} de {{}} hoy"),
            "request": [*various()[n].messages, chat.user("continúa"), chat.say("Ya está.", think="")],
            "template": listed(f"o{n}", f"r{n}"),
        }
        return conversation(f"s/{n}", same[shared])

    source = sources(*map(of, range(12)))
    assert sorted(len(rows(source, side)) for side in ("train", "dev", "eval")) == [0, 0, 12]
    # Without the shared part they stand on every side.
    assert all(rows(sources(*various()), side) for side in ("train", "dev", "eval"))


def test_a_count_draws_some_of_them_without_repetition() -> None:
    source = sources(*various())
    few = rows(source, "train", 3)
    assert len({row.group for row in few}) == 3
    assert [row.id for row in few] == [f"transcripts-train-{n:05d}" for n in range(3)]
    assert few == rows(source, "train", 3)


def test_rows_render_and_their_mask_is_true(tokenizer) -> None:
    kept, dropped = rendering.keep(everywhere(sources(*various(6))), tokenizer, 200_000)
    assert dropped == []
    assert len(kept) == 6
