"""What a model says on held-out frames: exact forms, which of two forms it prefers, and perplexity."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainer.minigpt import batches, corpus
from trainer.minigpt.corpus import HELD_OUT, WITHHELD, Sentence
from trainer.minigpt.model import MiniGPT


def score(model: MiniGPT) -> dict[str, Any]:
    """Every figure of one model; accuracies as shares, preferences in nats, perplexity of a character.

    `irregular` and `control` are exact-form accuracies over all tenses, `by_tense` those of the irregular
    verbs apart; `regularised` is the share of past and participle answered with the `-ed` form;
    `preference` is log p(right) - log p(-ed) by tense and verb, a mean over persons and frames.
    """
    irregular = held_out(corpus.IRREGULAR)
    control = held_out(corpus.CONTROL)
    hits = exact(model, irregular)
    withheld = [one for one in irregular if one.tense in WITHHELD]
    return {
        "irregular": _mean(hits),
        "control": _mean(exact(model, control)),
        "by_tense": {
            tense: _mean(hit for hit, one in zip(hits, irregular, strict=True) if one.tense == tense)
            for tense in corpus.TENSES
        },
        "regularised": _mean(exact(model, [regularised(one) for one in withheld])),
        "preference": preference(model, withheld),
        "perplexity": perplexity(model, control),
    }


def held_out(verbs: Iterable[str]) -> list[Sentence]:
    """The sentences that measure these verbs: every tense and person in held-out frames."""
    return corpus.sentences(verbs, corpus.TENSES, HELD_OUT)


@torch.no_grad()
def exact(model: MiniGPT, sentences: Sequence[Sentence]) -> list[bool]:
    """Whether greedy decoding writes each form and the blank after it.

    One pass tells: greedy decoding writes a text exactly when, after each right prefix of it, the next
    right character is the likeliest.
    """
    ids, labels = batches.rows(sentences, "form")
    right = model(ids).argmax(-1) == labels
    return (right | (labels == batches.IGNORE)).all(1).tolist()


def preference(model: MiniGPT, sentences: Sequence[Sentence]) -> dict[str, dict[str, float]]:
    """Mean of log p(right form) - log p(-ed form), in nats, by tense and verb; sentences in past tenses."""
    other = [regularised(one) for one in sentences]
    gaps = (form_log_probability(model, sentences) - form_log_probability(model, other)).tolist()
    found: dict[str, dict[str, list[float]]] = {}
    for one, gap in zip(sentences, gaps, strict=True):
        found.setdefault(one.tense, {}).setdefault(one.verb, []).append(gap)
    return {tense: {verb: _mean(gaps) for verb, gaps in verbs.items()} for tense, verbs in found.items()}


def form_log_probability(model: MiniGPT, sentences: Sequence[Sentence]) -> Tensor:
    """log p of each form with the blank after it, given its prompt: (N,), in nats."""
    return -_losses(model, sentences, "form").sum(1)


def perplexity(model: MiniGPT, sentences: Sequence[Sentence]) -> float:
    """Of a character of the answers (form, tail, end), given the prompts."""
    losses = _losses(model, sentences, "answer")
    _, labels = batches.rows(sentences, "answer")
    return math.exp(losses.sum().item() / int((labels != batches.IGNORE).sum()))


@torch.no_grad()
def greedy(model: MiniGPT, sentence: Sentence, most: int = 16) -> str:
    """What the model writes after the prompt, up to a full stop or `most` characters."""
    ids = [batches.END, *corpus.encode(sentence.prompt)]
    written = ""
    while len(written) < most and len(ids) < model.shape.context and not written.endswith("."):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        written += corpus.CHARACTERS[ids[-1]]
    return written


@torch.no_grad()
def _losses(model: MiniGPT, sentences: Sequence[Sentence], labelled: str) -> Tensor:
    ids, labels = batches.rows(sentences, labelled)
    losses = functional.cross_entropy(
        model(ids).flatten(0, 1), labels.flatten(), ignore_index=batches.IGNORE, reduction="none"
    )
    return losses.view_as(labels)


def regularised(one: Sentence) -> Sentence:
    """The same sentence with the form that the rule would give."""
    person = one.prompt.split()[2].removesuffix(":")
    return replace(one, form=corpus.form(one.verb, one.tense, person, regularised=True))


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
