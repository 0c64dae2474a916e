"""The installed packages against pyproject.toml (what must be there) and constraints.txt (which version)."""

from collections.abc import Mapping
from pathlib import Path

from trainer.checks.check import Check
from trainer.checks.machine import normalised


def read_constraints(path: Path) -> dict[str, str]:
    """Version by normalised name, of the lines `name==version`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {normalised(name): version.strip() for name, version in pairs}


def check_packages(
    installed: Mapping[str, str], requirements: list[str], constraints: Mapping[str, str]
) -> Check:
    """A missing one of `requirements` fails; a version that is not the tested one is a warning.

    `installed` and `constraints` are versions by normalised name.
    """
    from packaging.requirements import Requirement

    needed = [Requirement(line) for line in requirements]
    missing = [
        one.name
        for one in needed
        if (one.marker is None or one.marker.evaluate()) and normalised(one.name) not in installed
    ]
    if missing:
        return Check("packages", "fail", f"not installed: {', '.join(missing)}", "make env")
    differing = [
        f"{name} {installed[name]} (tested {version})"
        for name, version in constraints.items()
        if installed.get(name, version).split("+")[0] != version
    ]
    if differing:
        return Check("packages", "warn", ", ".join(differing), "not the tested set: make env")
    tested = len(constraints.keys() & installed.keys())
    return Check("packages", "ok", f"{tested} as in constraints.txt")
