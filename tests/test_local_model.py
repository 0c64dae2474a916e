"""A checkpoint in this process: questions share batches, and each gets the answer that it gets alone."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from core import chat, generate, toolcalls
from core.endpoint import Question
from core.render import prompt_text
from eval.models import parsing
from eval.models.local import LocalModel
from eval.models.weights import Weights

TOOL = chat.tool("clock", "Tells the time", {"type": "object", "properties": {"zone": {"type": "string"}}})
QUESTIONS = [
    Question(
        messages=[chat.user("hola " * (1 + number % 3))],
        tools=[TOOL] if number % 2 else [],
        max_tokens=12,
        thinking=number < 4,
    )
    for number in range(6)
]


@pytest.fixture(scope="module")
def weights(base_dir: Path) -> Weights:
    return Weights(base_dir, "float32")


def ask(model: LocalModel, questions: list[Question]) -> list[Any]:
    answers: dict[int, Any] = {}

    async def one(number: int) -> None:
        answers[number] = (await model.ask(questions[number])).message

    async def every() -> None:
        async with anyio.create_task_group() as group:
            for number in range(len(questions)):
                group.start_soon(one, number)

    anyio.run(every)
    return [answers[number] for number in range(len(questions))]


def test_answers_in_company_are_those_alone_and_those_of_the_rendered_prompt(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = []
    real = generate.generate_batch

    def counted(model: Any, tokenizer: Any, prompts: list[str], **how: Any) -> list[str]:
        batches.append(len(prompts))
        return real(model, tokenizer, prompts, **how)

    monkeypatch.setattr(generate, "generate_batch", counted)
    together = ask(LocalModel(weights), QUESTIONS)
    assert batches == [len(QUESTIONS)]
    monkeypatch.setitem(generate.BATCH, "cpu", 4)
    assert ask(LocalModel(weights), QUESTIONS) == together
    assert batches[1:] == [4, 2]
    for question, message in zip(QUESTIONS, together, strict=True):
        assert ask(LocalModel(weights), [question]) == [message]
        tokenizer = weights.tokenizer
        prompt = prompt_text(question.messages, question.tools, tokenizer, enable_thinking=question.thinking)
        (text,) = real(weights.model, tokenizer, [prompt], max_new_tokens=question.max_tokens)
        reply = toolcalls.parse(text if question.thinking else f"</think>{text}", question.tools)
        assert message["reasoning_content"] == (reply.reasoning or "")
        assert message["content"] == reply.content
    assert any(message["reasoning_content"] for message in together[:4])
    assert not any(message["reasoning_content"] for message in together[4:])


def test_an_error_while_generating_reaches_who_asked(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> list[str]:
        raise MemoryError

    monkeypatch.setattr(generate, "generate_batch", broken)
    with pytest.raises(ExceptionGroup) as caught:
        ask(LocalModel(weights), QUESTIONS)
    assert isinstance(caught.value.exceptions[0], MemoryError)


def test_a_text_reads_as_its_prompt_left_off() -> None:
    thought = "Hm.\n</think>\n\nHola"
    assert parsing.after_thinking("<|im_start|>assistant\n<think>\n", thought) == thought
    for prompt in ("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n\n</think>\n\n"):
        assert toolcalls.parse(parsing.after_thinking(prompt, "Hola"), []).content == "Hola"
