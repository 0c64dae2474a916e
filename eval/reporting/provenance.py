"""Where every number comes from: what each stage took, its digests, settings, versions, and who judged."""

from collections.abc import Iterator
from typing import Any

from core import markup
from core.artifacts import digest
from core.markup import Markup, join, tag
from eval.reporting.facts import Facts, changed_inputs

SHOWN_DIGITS = 12


def stages(facts: Facts) -> Markup:
    """Seconds and peak memory of each stage."""
    rows = [
        [name, f"{m['seconds']:,.0f}", f"{m['peak_mb']:,}"]
        for name, (_, m) in facts.stages.items()
        if "seconds" in m
    ]
    return markup.plain_table(["stage", "seconds", "peak MB"], rows)


def section(facts: Facts) -> Markup:
    """Digests, who judged, versions, and the settings of every stage."""
    changed, sha256 = changed_inputs(facts.stages), digests(facts)
    rows = []
    for name, (path, manifest) in facts.stages.items():
        made_of = ", ".join(
            f"{what} {one['sha256'][:SHOWN_DIGITS]}{' (changed since)' if what in changed[name] else ''}"
            for what, one in manifest["inputs"].items()
        )
        rows.append([name, str(path), sha256[name], made_of])
    versions = facts.stages[f"eval-{facts.checkpoint}"][1]["versions"]
    return join(
        markup.facts(dict(judged_by(facts)) | seeds(facts)),
        markup.plain_table(["stage", "at", "sha256", "made of"], rows),
        tag("h3", "Versions"),
        markup.facts(versions),
        tag("h3", "Settings"),
        *_settings(facts),
    )


def digests(facts: Facts) -> dict[str, str]:
    """The beginning of each artefact's sha256, by its stage."""
    return {name: digest(manifest)[:SHOWN_DIGITS] for name, (_, manifest) in facts.stages.items()}


def judged_by(facts: Facts) -> Iterator[tuple[str, str]]:
    """Which parser read the model's calls, and what ran the model."""
    counts = facts.counts(f"eval-{facts.checkpoint}")
    for title, name in (("calls parsed by", "judged_by"), ("model run by", "model")):
        if counts.get(name):
            yield title, str(counts[name])


def seeds(facts: Facts) -> dict[str, Any]:
    """Every seed that a stage recorded."""
    return {
        name.lower().replace("_", " "): value
        for _, manifest in facts.stages.values()
        for name, value in manifest["settings"].items()
        if name.endswith("SEED")
    }


def _settings(facts: Facts) -> Iterator[Markup]:
    for name, (_, manifest) in facts.stages.items():
        given = {key: value for key, value in manifest["settings"].items() if value not in ("", [], None)}
        if given:
            yield markup.details([f"{name}: {len(given)} settings"], markup.facts(given))
