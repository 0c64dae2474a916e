"""The verdict of the gates on one checkpoint: what eval writes, and what quantize and deploy ask for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import artifacts
from core.errors import UserError

IMPROVES, NO_CHANGE, WORSE, INCOMPLETE = "improves", "no_change", "worse", "incomplete"
DECISIVE = ("skills", "formality")
"""Gates that must improve, whichever of them the profile has; the others must not be worse."""
FILE = "verdict.json"


@dataclass(frozen=True)
class Verdict:
    """Verdicts by gate, and what they come to."""

    gates: dict[str, str]

    @property
    def overall(self) -> str:
        """`improves` when the decisive gates improve and no other is worse."""
        found = set(self.gates.values())
        decisive = {self.gates[gate] for gate in DECISIVE if gate in self.gates}
        if not decisive or INCOMPLETE in found:
            return INCOMPLETE
        if WORSE in found:
            return WORSE
        return IMPROVES if decisive == {IMPROVES} else NO_CHANGE

    @property
    def passes(self) -> bool:
        """Whether the next stage may run."""
        return self.overall == IMPROVES

    def __str__(self) -> str:
        return f"{self.overall} ({', '.join(f'{gate} {one}' for gate, one in self.gates.items())})"


def directory(out_dir: Path, name: str) -> Path:
    """Where the verdict on the run's checkpoint `name` (`merged`, `nvfp4`) is kept."""
    return out_dir / "verdict" / name


def target(name: str) -> str:
    """What make calls the stage that judges the checkpoint `name`."""
    return "eval" if name == "merged" else f"eval-{name}"


def read(out_dir: Path, name: str, checkpoint: Path) -> Verdict:
    """The verdict on the bytes that stand at `checkpoint`; UserError where they were never judged."""
    path = directory(out_dir, name)
    manifest = artifacts.require(path, target(name))
    judged = manifest["inputs"]["checkpoint"]["sha256"]
    if judged != artifacts.digest(artifacts.require(checkpoint, "all")):
        raise UserError(f"{path} judges another checkpoint than {checkpoint}: make {target(name)}")
    gates: dict[str, Any] = json.loads((path / FILE).read_text(encoding="utf-8"))["gates"]
    return Verdict({gate: found["verdict"] for gate, found in gates.items()})
