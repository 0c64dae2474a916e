"""The pipeline that every row goes through before it is written.

format -> schema -> rules -> judge -> near-duplicates (checks.py) -> leaks between the sides (split.py) ->
render and mask (rendering.py). A step drops and counts single rows; a leak stops the build, because its
source has to be mended. What is rendered then passes the gate against secrets (gate.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.chat import Row
from core.errors import UserError
from dataset_builder.documents.skills import Skill
from dataset_builder.verifying import checks, rendering, split
from dataset_builder.verifying.checks import Drop, Judge
from dataset_builder.verifying.rulebook import Rulebook


@dataclass(frozen=True)
class Verified:
    """Rows with their verdicts in `meta`, in the order that they came in, and what was left out."""

    train: list[Row]
    held_out: list[Row]
    dropped: list[Drop]


def verify(
    train: Sequence[Row],
    held_out: Sequence[Row],
    *,
    tokenizer: Any,
    max_length: int,
    sha256: Mapping[str, str],
    rules_of: Rulebook,
    skills: Sequence[Skill] = (),
    held_out_skills: Sequence[str] = (),
    judge: Judge | None = None,
) -> Verified:
    """Both sides, verified; arguments as in the steps' own modules.

    UserError on a leak between the sides, a held-out skill in training.
    """
    train, dropped = checks.keep(train, sha256=sha256, rules_of=rules_of, judge=judge)
    held_out, more = checks.keep(held_out, sha256=sha256, rules_of=rules_of, judge=judge)
    found = split.leaks(train, held_out) + split.held_out_skills_in(train, skills, held_out_skills)
    _refuse([f"{leak}; reword it in its source" for leak in found])
    train, unfit = rendering.keep(train, tokenizer, max_length)
    held_out, unfit_held_out = rendering.keep(held_out, tokenizer, max_length)
    return Verified(train, held_out, [*dropped, *more, *unfit, *unfit_held_out])


def _refuse(findings: list[str]) -> None:
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise UserError(findings[0] + more)
