"""Several samples in one row that cannot see each other, and the proof of it before training.

A sample must not attend to its neighbours, nor meet what they left in the recurrent state and in the short
convolution's window of a Gated DeltaNet layer. So the collator says where samples begin in every way that
the kernels read: restarting `position_ids`, `cu_seq_lens_*` (attention, the delta rule), `seq_idx`
(causal_conv1d). Whether the kernels at hand heed them is measured, as some ignore them silently.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from core.errors import UserError
from core.gated_delta import sequence_ends
from trainer.learning.samples import Sample

ATTENTION = "sdpa_each_sequence"
TOKENS = (100, 77)
"""Of the two samples compared: more than a chunk of the delta rule (64), and no whole number of chunks."""
ALLOWED, UNITS = 1e-5, 8
"""How far a logit may be from that of the sample alone: by 1e-5, or by eight rounding steps of the largest.
On the tiny base, whose largest is 24, packing moves one by 6e-6 to 1.3e-5 in float32, as padding does (the
experts' products are of other sizes), and by 0.06 in bfloat16; a leak by 2.9 or more."""

Batch = dict[str, Any]


def padded(pad_token_id: int) -> Callable[[list[Sample]], Batch]:
    """A collator of [rows, T] batches, short rows filled up on the right."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    collate = DataCollatorForLanguageModeling(pad_token_id=pad_token_id)
    return lambda samples: collate(_features(samples, pad_token_id))


def packed(pad_token_id: int) -> Callable[[list[Sample]], Batch]:
    """A collator of [1, T] batches, samples one after the other, with all that keeps them apart."""
    from transformers import DataCollatorWithFlattening

    collate = DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_seq_idx=True, return_tensors="pt"
    )
    return lambda samples: collate(_features(samples, pad_token_id))


@dataclass(frozen=True)
class Measured:
    """Largest differences of a logit from the same samples alone."""

    packed: float
    padded: float
    """By rounding alone."""
    largest: float
    """The largest logit."""
    dtype: str
    step: float
    """Relative rounding step of the dtype: 1.2e-7 for float32, 0.0078 for bfloat16."""

    @property
    def limit(self) -> float:
        """What `packed` may be."""
        limit = max(ALLOWED, UNITS * self.step * self.largest)
        # A deep model in 16 bits rounds more: as much as in a padded batch, where causality keeps rows apart.
        return limit if self.dtype == "float32" else max(limit, UNITS * self.padded)


def enable(model: Any, samples: list[Sample]) -> Measured:
    """Prepare a PEFT model for packed rows and prove that they are safe.

    Raises UserError where two samples packed give other logits than alone: with these kernels packing would
    train each sample on its neighbours.
    """
    base = model.get_base_model()
    if base.config.get_text_config()._attn_implementation in ("sdpa", "eager"):
        _attend_each_sequence(base)
    try:
        found = measure(model, samples)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"PACKING=1: a packed row fails here ({reason}): train with PACKING= (blank)"
        ) from None
    if not found.packed <= found.limit:  # NaN is not less either
        raise UserError(
            f"PACKING=1: packed samples see each other with the kernels at hand: a logit differs by"
            f" {found.packed:.2g}, {found.limit:.2g} is allowed in {found.dtype}: train with PACKING= (blank)"
        )
    return found


def measure(model: Any, samples: list[Sample]) -> Measured:
    """Compare the two longest samples, cut to `TOKENS`, packed and padded with each alone; without dropout.

    Where there is one sample it stands for both.
    """
    import torch

    longest = sorted(samples, key=lambda sample: -len(sample.input_ids))
    pair = [
        replace(sample, input_ids=sample.input_ids[:tokens], labels=sample.labels[:tokens])
        for sample, tokens in zip([*longest, *longest][:2], TOKENS, strict=True)
    ]
    flat, square = packed(0), padded(0)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            alone = [_logits(model, flat([one]))[0] for one in pair]
            together = _logits(model, flat(pair))[0].split([len(one.input_ids) for one in pair])
            rows = _logits(model, square(pair))
    finally:
        model.train(training)

    def largest(others: Any) -> float:
        pairs = zip(others, alone, strict=True)
        return max(float((one[: len(own)].float() - own.float()).abs().max()) for one, own in pairs)

    return Measured(
        packed=largest(together),
        padded=largest(rows),
        largest=max(float(own.abs().max()) for own in alone),
        dtype=str(alone[0].dtype).removeprefix("torch."),
        step=torch.finfo(alone[0].dtype).eps,
    )


def _logits(model: Any, batch: Batch) -> Any:
    inputs = {
        name: value.to(model.device) if hasattr(value, "to") else value
        for name, value in batch.items()
        if name != "labels"
    }
    return model(**inputs, use_cache=False).logits


def _features(samples: list[Sample], pad_token_id: int) -> list[dict[str, list[int]]]:
    """What transformers' and trl's collators read; for no sample one without labels."""
    if not samples:
        return [{"input_ids": [pad_token_id] * 2, "labels": [-100] * 2}]
    return [{"input_ids": sample.input_ids, "labels": sample.labels} for sample in samples]


def _attend_each_sequence(base: Any) -> None:
    """Let attention run on each sequence alone, instead of on a mask of the square of the row's length."""
    import torch
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def attend(
        module: Any, query: Any, key: Any, value: Any, mask: Any, cu_seq_lens_q: Any = None, **how: Any
    ) -> tuple[Any, None]:
        """query, key, value [1, heads, T, head_dim] -> [1, T, heads, head_dim]; `mask` is not needed."""
        ends = [0, query.shape[2]] if cu_seq_lens_q is None else sequence_ends(cu_seq_lens_q)
        lengths = [stop - start for start, stop in pairwise(ends)]
        parts = zip(*(x.split(lengths, 2) for x in (query, key, value)), strict=True)
        outputs = [sdpa_attention_forward(module, q, k, v, None, **how)[0] for q, k, v in parts]
        return torch.cat(outputs, 1), None

    AttentionInterface.register(ATTENTION, attend)
    whole = base.config.get_text_config() is base.config
    base.set_attn_implementation(ATTENTION if whole else {"text_config": ATTENTION})
