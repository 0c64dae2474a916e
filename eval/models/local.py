"""A checkpoint in this process, by transformers: questions asked at the same time share a batch."""

from dataclasses import dataclass

from core import generate
from core.endpoint import Answer, Question
from core.render import prompt_text
from eval.models import parsing
from eval.models.weights import Weights

SETTLE_SECONDS = 0.05
"""Where no question came for so long, the batch is as full as it gets."""


@dataclass(eq=False)
class _Asked:
    prompt: str
    tokens: int
    text: str | None = None


class LocalModel:
    """Greedy answers of a checkpoint; used in one event loop."""

    def __init__(self, weights: Weights) -> None:
        import anyio

        self.name = f"transformers, {weights.dtype}"
        self._weights = weights
        self._waiting: list[_Asked] = []
        self._turn = anyio.Lock()
        self.parser, self._parse = parsing.parser(weights.tokenizer)

    async def ask(self, question: Question) -> Answer:
        """As `eval.models.Model`; who finds its question unanswered answers a batch of those that wait."""
        prompt = prompt_text(
            question.messages, question.tools, self._weights.tokenizer, enable_thinking=question.thinking
        )
        asked = _Asked(prompt, question.max_tokens)
        self._waiting.append(asked)
        async with self._turn:
            if asked.text is None:
                await self._settled()
                await self._answer_batch(asked)
        assert asked.text is not None
        reply = self._parse(parsing.after_thinking(prompt, asked.text), question.tools)
        return Answer(reply.message(), "stop")

    async def _settled(self) -> None:
        import anyio

        before = 0
        while len(self._waiting) != before:
            before = len(self._waiting)
            await anyio.sleep(SETTLE_SECONDS)

    async def _answer_batch(self, first: _Asked) -> None:
        """Answer `first` and those nearest to it in length, so that little is padded."""
        import anyio.to_thread

        others = sorted(
            (one for one in self._waiting if one is not first and one.tokens == first.tokens),
            key=lambda one: abs(len(one.prompt) - len(first.prompt)),
        )
        most = generate.BATCH[self._weights.model.device.type]
        batch = [first, *others[: most - 1]]
        texts = await anyio.to_thread.run_sync(self._generate, batch)
        for one, text in zip(batch, texts, strict=True):
            one.text = text
            self._waiting.remove(one)

    def _generate(self, batch: list[_Asked]) -> list[str]:
        prompts = [one.prompt for one in batch]
        weights, tokens = self._weights, batch[0].tokens
        return generate.generate_batch(weights.model, weights.tokenizer, prompts, max_new_tokens=tokens)
