"""Stage `replay`: what the model does well already, in its own words, lest training make it forget.

The current model answers prompts of the file REPLAY: the one that ENDPOINT serves, else the base, in this
process. An answer that is broken is left out and counted. A held-out prompt that carries a reference answer
keeps it, to measure what was forgotten. Answers of a server are kept as they come, so that an interrupted
run goes on where it stopped.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core import artifacts, chat, config, endpoint, errors, generate, toolcalls
from core.chat import Message, Row
from core.endpoint import Answer, Question, Refusal
from core.errors import UserError
from core.profile import Data
from core.render import prompt_text
from core.settings import ReplaySettings
from core.toolcalls import ToolCall
from core.yaml_files import mapping, read_yaml, text
from dataset_builder import answers, raw
from dataset_builder.sanitize import Sanitizer
from dataset_builder.sanitizing.inputs import read_key
from dataset_builder.talking.requests import expanded

TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"
RUN_OF_WORDS, FEWEST_WORDS, MOST_REPEATED = 6, 60, 0.5
"""An answer loops where, in 60 words or more, over half of its runs of 6 words were there before."""


def main(words: list[str]) -> int:
    """Answer the prompts; exit code 0. UserError where prompts or base are missing, or the server fails."""
    settings = config.parse(ReplaySettings, words)
    profile, path = settings.profile, settings.data_dir / "replay"
    if not isinstance(profile.data, Data):
        raise UserError(f"PROFILE={profile.name} has no replay stage (its data are not made from servers)")
    count, kept_back = settings.rows.get("replay", 0), profile.data.eval_rows.get("replay", 0)
    inputs = {
        "prompts": {"path": str(settings.replay), "sha256": artifacts.file_sha256(settings.replay)},
        "base": artifacts.as_input(settings.base_dir, artifacts.require(settings.base_dir, "base")),
    }
    recorded = config.recorded(settings) | {"REPLAY_ROWS": [count, kept_back]}
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"replay: up to date ({path})")
        return errors.DONE
    train, held_out = divide(read_prompts(settings.replay), count, kept_back)
    store = path.with_name("replay.answers.jsonl")
    unanswered = [row for row in held_out if not chat.assistant_turns(row.messages)]
    with artifacts.create(
        path, kind="replay", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        if settings.endpoint:
            sanitizer = Sanitizer(
                read_key(settings.data_dir / raw.KEY), known=raw.read_known_values(settings)
            )
            asked = ask_endpoint(train + unanswered, settings, store)
            made = [(row, _scrubbed(answer, sanitizer)) for row, answer in asked]
        else:
            made = ask_base(train + unanswered, settings)
        good, dropped = sound(made)
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
    store.unlink(missing_ok=True)
    for reason, number in sorted(dropped.items()):
        print(f"replay: {number} left out: {reason}")
    print(f"replay: {len(sides[TRAIN])} answers to train on, {len(sides[HELD_OUT])} held out ({path})")
    return errors.DONE


def load(path: Path) -> tuple[list[Row], list[Row]]:
    """The rows of a replay artefact: to train on, held out."""
    artifacts.require(path, "replay")
    return chat.read_rows(path / TRAIN), chat.read_rows(path / HELD_OUT)


def read_prompts(path: Path) -> list[Row]:
    """The prompts of a file: rows (`.jsonl`), or texts by topic (`.yaml`), where `(a|b)` makes two of one.

    Raises UserError where the file is missing or broken, or a text stands in it twice.
    """
    if path.suffix == ".jsonl":
        return chat.read_rows(path)
    rows: dict[str, Row] = {}
    for topic, prompts in mapping(read_yaml(path), str(path)).items():
        where = f"{path}: {topic}"
        if not isinstance(prompts, list) or not prompts:
            raise UserError(f"{where}: expected a list of prompts, `- ...`; add at least one")
        for number, prompt in enumerate(prompts, 1):
            for asked in expanded(text(prompt, f"{where} {number}")):
                if asked in rows:
                    raise UserError(f"{where} {number}: {asked!r} stands there twice; delete one")
                rows[asked] = Row(
                    id=f"replay-{len(rows):04d}", bucket="replay", group=f"{topic} {number}", split="train",
                    messages=[chat.user(asked)], tools=[], source=f"{path}#{topic}",
                )  # fmt: skip
    return list(rows.values())


def divide(rows: list[Row], train: int, held_out: int) -> tuple[list[Row], list[Row]]:
    """Which prompts are answered anew for training and which are held out, by a digest of their group.

    No group is on both sides.
    """
    order = sorted(rows, key=lambda row: hashlib.sha256(row.group.encode()).digest())
    used = {row.group for row in order[:train]}
    others = [replace(row, split="eval") for row in order[train:] if row.group not in used]
    return order[:train], others[:held_out]


def ask_base(rows: Sequence[Row], settings: ReplaySettings) -> list[tuple[Row, Answer | Refusal]]:
    """The base's own greedy answers, in this process."""
    assert isinstance(settings.profile.data, Data)
    tokenizer = generate.load_tokenizer(settings.base_dir)
    model = generate.load_model(settings.base_dir, settings.profile.train.dtype)
    prompts = [prompt_text(_history(row), row.tools, tokenizer) for row in rows]
    limit = settings.profile.data.answer_tokens
    texts = generate.generate(
        model, tokenizer, prompts, max_new_tokens=limit, what="replay: the base answers"
    )
    return [(row, _from_text(row, text)) for row, text in zip(rows, texts, strict=True)]


def ask_endpoint(
    rows: Sequence[Row], settings: ReplaySettings, store: Path
) -> list[tuple[Row, Answer | Refusal]]:
    """The served model's answers, kept in the file `store` until all are there."""
    assert isinstance(settings.profile.data, Data)
    server, limit = endpoint.connect(settings.endpoint), settings.profile.data.answer_tokens
    questions = [
        Question(messages=_history(row), tools=row.tools, max_tokens=limit, seed=number)
        for number, row in enumerate(rows)
    ]
    found = answers.ask(server, questions, store, what=f"replay: {server.model} answers")
    return list(zip(rows, found, strict=True))


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


def _scrubbed(answer: Answer | Refusal, sanitizer: Sanitizer) -> Answer | Refusal:
    if isinstance(answer, Refusal):
        return answer
    return replace(answer, message=sanitizer.scrub_value(answer.message))


def _from_text(row: Row, text: str) -> Answer:
    return Answer(toolcalls.parse(text, row.tools).message(), "stop")


if __name__ == "__main__":
    errors.run(main)
