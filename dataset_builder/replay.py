"""Stage `replay`: what the model does well already, in its own words, lest training make it forget.

The current model answers prompts of the file REPLAY: the one that ENDPOINT serves, else the base, in this
process. An answer that is broken is left out and counted. A held-out prompt that carries a reference answer
keeps it, to measure what was forgotten. Answers of a server are kept as they come, so that an interrupted
run goes on where it stopped.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors, generate, toolcalls
from core.chat import Message, Row
from core.errors import UserError
from core.render import prompt_text
from core.settings import ReplaySettings
from core.toolcalls import ToolCall
from dataset_builder import endpoint
from dataset_builder.endpoint import Answer, Endpoint, Question, Refusal

TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"
RUN_OF_WORDS, FEWEST_WORDS, MOST_REPEATED = 6, 60, 0.5
"""An answer loops where, in 60 words or more, over half of its runs of 6 words were there before."""


def main(words: list[str]) -> int:
    """Answer the prompts; exit code 0. UserError where prompts or base are missing, or the server fails."""
    settings = config.parse(ReplaySettings, words)
    profile, path = settings.profile, settings.data_dir / "replay"
    if profile.data is None:
        raise UserError(f"PROFILE={profile.name} has no replay stage (data is None in its profile)")
    count, kept_back = settings.rows.get("replay", 0), profile.data.eval_rows.get("replay", 0)
    inputs = {
        "prompts": {"path": str(settings.replay), "sha256": artifacts.file_sha256(settings.replay)},
        "base": artifacts.as_input(settings.base_dir, artifacts.require(settings.base_dir, "base")),
    }
    recorded = config.recorded(settings) | {"REPLAY_ROWS": [count, kept_back]}
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"replay: up to date ({path})")
        return errors.DONE
    train, held_out = divide(chat.read_rows(settings.replay), count, kept_back)
    answers = path.with_name("replay.answers.jsonl")
    unanswered = [row for row in held_out if not chat.assistant_turns(row.messages)]
    if settings.endpoint:
        made = ask_endpoint(train + unanswered, settings, endpoint.connect(settings.endpoint), answers)
    else:
        made = ask_base(train + unanswered, settings)
    good, dropped = sound(made)
    with artifacts.create(
        path, kind="replay", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        answered = {row.id: row for row in good}
        sides = {
            TRAIN: [answered[row.id] for row in train if row.id in answered],
            HELD_OUT: [
                answered.get(row.id, row)
                for row in held_out
                if row.id in answered or chat.assistant_turns(row.messages)
            ],
        }
        for name, rows in sides.items():
            chat.write_rows(draft.path / name, rows)
        draft.backend = {"name": settings.endpoint or "base"}
        draft.counts = {"train": len(sides[TRAIN]), "eval": len(sides[HELD_OUT]), "dropped": dict(dropped)}
    answers.unlink(missing_ok=True)
    for reason, number in sorted(dropped.items()):
        print(f"replay: {number} left out: {reason}")
    print(f"replay: {len(sides[TRAIN])} answers to train on, {len(sides[HELD_OUT])} held out ({path})")
    return errors.DONE


def load(path: Path) -> tuple[list[Row], list[Row]]:
    """The rows of a replay artefact: to train on, held out."""
    artifacts.require(path, "replay")
    return chat.read_rows(path / TRAIN), chat.read_rows(path / HELD_OUT)


def divide(rows: list[Row], train: int, held_out: int) -> tuple[list[Row], list[Row]]:
    """Which prompts are answered anew for training and which are held out, by a digest of their group."""
    order = sorted(rows, key=lambda row: hashlib.sha256(row.group.encode()).digest())
    return order[:train], [replace(row, split="eval") for row in order[train : train + held_out]]


def ask_base(rows: Sequence[Row], settings: ReplaySettings) -> list[tuple[Row, Answer | Refusal]]:
    """The base's own greedy answers, in this process."""
    assert settings.profile.data is not None
    tokenizer = generate.load_tokenizer(settings.base_dir)
    model = generate.load_model(settings.base_dir, settings.profile.train.dtype)
    prompts = [prompt_text(_history(row), row.tools, tokenizer) for row in rows]
    limit = settings.profile.data.answer_tokens
    texts = generate.generate(
        model, tokenizer, prompts, max_new_tokens=limit, what="replay: the base answers"
    )
    return [(row, _from_text(row, text)) for row, text in zip(rows, texts, strict=True)]


def ask_endpoint(
    rows: Sequence[Row], settings: ReplaySettings, server: Endpoint, answers: Path
) -> list[tuple[Row, Answer | Refusal]]:
    """The served model's answers; each is appended to the file `answers`, and never asked for again."""
    assert settings.profile.data is not None
    limit = settings.profile.data.answer_tokens
    known = _read_answers(answers)
    keys = [_key(server.model, row) for row in rows]
    missing = [i for i, key in enumerate(keys) if key not in known]
    if len(missing) < len(rows):
        print(f"replay: {len(rows) - len(missing)} answers of an interrupted run are kept")
    questions = [
        Question(messages=_history(rows[i]), tools=rows[i].tools, max_tokens=limit, seed=int(keys[i][:7], 16))
        for i in missing
    ]
    answers.parent.mkdir(parents=True, exist_ok=True)
    with answers.open("a", encoding="utf-8") as file:

        def take(number: int, answer: Answer | Refusal) -> None:
            key = keys[missing[number]]
            known[key] = answer
            if isinstance(answer, Answer):
                file.write(json.dumps({"key": key, **asdict(answer)}, ensure_ascii=False) + "\n")
                file.flush()

        endpoint.ask_all(server, questions, take, what=f"replay: {server.model} answers")
    return [(row, known[key]) for row, key in zip(rows, keys, strict=True)]


def sound(answered: Sequence[tuple[Row, Answer | Refusal]]) -> tuple[list[Row], Counter[str]]:
    """The rows whose answer can be learnt from, with it as their last turn; and why others were left out."""
    rows, dropped = [], Counter()
    for row, answer in answered:
        fault = answer.reason if isinstance(answer, Refusal) else fault_in(answer, row)
        if fault or isinstance(answer, Refusal):
            dropped[fault] += 1
        else:
            rows.append(replace(row, messages=[*_history(row), answer.message], source="the base"))
    return rows, dropped


def fault_in(answer: Answer, row: Row) -> str:
    """Why an answer is not one to learn from; empty where it is."""
    message = answer.message
    calls = [ToolCall(**call["function"]) for call in message.get("tool_calls") or []]
    if answer.finish == "length":
        return "cut at the limit of tokens"
    if not message["content"] and not calls:
        return "empty"
    if not message["reasoning_content"]:
        return "without a thought"
    if any(toolcalls.faults(call, row.tools) for call in calls):
        return "invalid call"
    if loops(message["content"]) or loops(message["reasoning_content"]):
        return "goes round in circles"
    return ""


def loops(text: str) -> bool:
    """Whether a text repeats itself: see RUN_OF_WORDS."""
    words = text.split()
    runs = [tuple(words[i : i + RUN_OF_WORDS]) for i in range(len(words) - RUN_OF_WORDS + 1)]
    return len(words) >= FEWEST_WORDS and len(set(runs)) < (1 - MOST_REPEATED) * len(runs)


def _history(row: Row) -> list[Message]:
    turns = chat.assistant_turns(row.messages)
    return row.messages[: turns[0]] if turns else row.messages


def _from_text(row: Row, text: str) -> Answer:
    reply = toolcalls.parse(text, row.tools)
    message = chat.say(reply.content, think=reply.reasoning or "")
    if reply.calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in reply.calls
        ]
    return Answer(message, "stop")


def _key(model: str, row: Row) -> str:
    asked = json.dumps([model, _history(row), row.tools], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(asked.encode()).hexdigest()


def _read_answers(path: Path) -> dict[str, Answer | Refusal]:
    """What an interrupted run was told; its last line may be half written and is dropped from the file."""
    if not path.exists():
        return {}
    whole = path.read_bytes()
    lines = whole[: whole.rfind(b"\n") + 1]
    if len(lines) < len(whole):
        with path.open("r+b") as file:
            file.truncate(len(lines))
    kept: dict[str, Any] = {}
    for line in lines.splitlines():
        one = json.loads(line)
        kept[one["key"]] = Answer(one["message"], one["finish"])
    return kept


if __name__ == "__main__":
    errors.run(main)
