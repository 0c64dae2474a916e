"""What each way to quantise keeps of the tune and costs, side by side, so that the user can decide."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import shards
from core.profile import Profile
from core.shards import TensorInfo
from quant.merging.ops import Op
from quant.quantising import keep, repack, retention
from quant.quantising.repack import Scales
from quant.quantising.retention import BF16, NVFP4, Sums, Table
from quant.quantising.touched import EXPERT, Places, Touched

FULL, DELTA, TUNED_IN_BF16 = "QUANT=full", "QUANT=delta", "KEEP_TUNED=bf16"
SCALES = {
    FULL: "measured anew, on the tuned model",
    DELTA: "production's",
    TUNED_IN_BF16: "none for what is kept",
}
"""Where a choice has the scales of quantised activations from."""


def after(
    checkpoint: Path, base: Mapping[str, TensorInfo], ops: Sequence[Op], profile: Profile, *, kept: bool
) -> dict[str, Any]:
    """As `report`, of a checkpoint that was calibrated anew; of what it keeps in BF16 that column alone."""
    assert profile.quant is not None
    written = shards.read_checkpoint(checkpoint)
    touched = Places(written, base, ops, profile.quant).touched()
    scales = repack.survey(touched.groups)
    return report(touched, scales, written, checkpoint, profile, TUNED_IN_BF16 if kept else FULL)


def report(
    touched: Touched,
    scales: Mapping[str, Scales],
    production: Mapping[str, TensorInfo],
    checkpoint: Path,
    profile: Profile,
    made: str,
) -> dict[str, Any]:
    """Print what is kept of the tune, by family of layers and by choice, and return it for the manifest.

    `production` are the tensors of an NVFP4 `checkpoint` that keeps nothing in BF16, unless that is what
    was `made`.
    """
    table = retention.measure(touched, scales)
    rows = compare(touched, table, production, checkpoint, profile)
    if made == TUNED_IN_BF16 and not keep.kept(touched.groups):
        rows = [row for row in rows if row["choice"] == made]
    print(*retention.lines(table), *lines(rows, made), sep="\n")
    return {"retention": retention.recorded(table), "choices": rows, "made": made}


def compare(
    touched: Touched, table: Table, production: Mapping[str, TensorInfo], checkpoint: Path, profile: Profile
) -> list[dict[str, Any]]:
    """A row for each choice: signal, noise and output of all tuned weights (see `retention`), the
    checkpoint's bytes, and the bytes of weights that the server reads for one token of one request.

    `production` is the NVFP4 checkpoint without a tensor kept; full and delta give the same weights.
    """
    size = sum(info.stop - info.start for info in production.values())
    token = token_bytes(production, checkpoint, profile)
    more = sum(_growth(matrix.quantized.shape) for group in keep.kept(touched.groups) for matrix in group)
    rows = []
    for name in (FULL, DELTA, TUNED_IN_BF16):
        kept = name == TUNED_IN_BF16
        figures = retention.total(_column(family, columns, kept) for family, columns in table.items())
        rows.append(
            {
                "choice": name,
                **{what: round(value, 4) for what, value in figures.figures().items()},
                "bytes": size + kept * more,
                "token_bytes": token + kept * more,
                "activation_scales": SCALES[name],
            }
        )
    return rows


def token_bytes(tensors: Mapping[str, TensorInfo], checkpoint: Path, profile: Profile) -> int:
    """Bytes of weights read for one token: every matrix once, of the routed experts those that are chosen.

    Not counted: the embedding, of which a token reads one row, the vision tower and the MTP head.
    """
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    experts = text.get("num_experts") or 1
    share = min(1.0, (text.get("num_experts_per_tok") or experts) / experts)
    left_out = tuple(prefix for prefix in (profile.vision_prefix, profile.mtp_prefix) if prefix)
    read = 0.0
    for name, info in tensors.items():
        if name.startswith(left_out) or name.endswith("embed_tokens.weight"):
            continue
        routed = EXPERT.search(name) or ".experts." in name
        read += (info.stop - info.start) * (share if routed else 1.0)
    return round(read)


def lines(rows: Sequence[Mapping[str, Any]], made: str) -> Iterator[str]:
    """A table of the choices, the one that is being `made` marked."""
    yield "quantize:   choice           signal  noise  in outputs         MB  MB a token  activations' scales"
    for row in rows:
        mark = "*" if row["choice"] == made else " "
        yield (
            f"quantize: {mark} {row['choice']:<15} {row['signal']:>7.1%} {row['noise']:>6.2f}"
            f" {row['output']:>11.2f} {row['bytes'] / 1e6:>10,.1f} {row['token_bytes'] / 1e6:>11,.2f}"
            f"  {row['activation_scales']}"
        )


def _column(family: str, columns: Mapping[str, Sums], kept: bool) -> Sums:
    in_bf16 = NVFP4 not in columns or (kept and ".experts." not in family)
    return columns[BF16 if in_bf16 else NVFP4]


def _growth(shape: tuple[int, ...]) -> int:
    """Bytes that a matrix of that shape takes in BF16 more than in NVFP4, its two global scales included."""
    elements = shape[0] * shape[1]
    return 2 * elements - (elements // 2 + elements // 16 + 8)
