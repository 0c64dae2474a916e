"""The second half of `make control`: did a run whose adapter is zero come out as the base?

The merged checkpoint must answer as the base does, word for word, and have its losses. Quantising rounds, and
paired losses show that: of the NVFP4 checkpoint no gate may move by more than what it may lose.
"""

import json
from typing import Any

from core import artifacts, config, errors, verdicts
from core.errors import Refused
from core.settings import RunSettings
from core.verdicts import IMPROVES, WORSE
from eval import evaluations
from eval.outcomes import Sample

ASIDE = ("live",)
"""Kinds of samples whose traces quote the clock and commit hashes, which are never twice the same."""


def main(words: list[str]) -> int:
    """Compare; exit code 0 where all is as it should be. Refused with a line for each that is not."""
    settings = config.parse(RunSettings, words)
    faults = []
    if artifacts.digest(artifacts.require(settings.merged_dir, "merge")) != artifacts.digest(
        artifacts.require(settings.base_dir, "base")
    ):
        faults.append("merged: its files are not the base's")
    base, merged = (_answers(settings, name) for name in ("base", "merged"))
    differing = [key for key in base if base[key] != merged.get(key)]
    if differing:
        kind, one = differing[0]
        faults.append(
            f"merged: {len(differing)} of {len(base)} samples are not the base's, {kind} {one} first"
        )
    for name in ("merged", "nvfp4"):
        path = verdicts.directory(settings.out_dir, name)
        artifacts.require(path, verdicts.target(name))
        judged = json.loads((path / verdicts.FILE).read_text(encoding="utf-8"))
        faults += [
            f"{name}: {gate} {one['verdict']}"
            for gate, one in judged["gates"].items()
            if one["verdict"] in (IMPROVES, WORSE)
            and abs(one["compared"][one["decides"]]["gain"]) > one["delta"]
        ]
    if faults:
        raise Refused("\n".join(f"control: {fault}" for fault in faults))
    print(f"control: a zero adapter gives the base: {len(base)} samples equal, no gate moves after NVFP4")
    return errors.DONE


def _answers(settings: RunSettings, name: str) -> dict[tuple[str, str], Sample]:
    found: dict[tuple[str, str], Any] = {}
    for sample in evaluations.samples(settings.out_dir, name):
        if sample["kind"] not in ASIDE:
            found[sample["kind"], sample["id"]] = sample
    return found


if __name__ == "__main__":
    errors.run(main)
