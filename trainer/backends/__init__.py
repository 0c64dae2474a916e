"""Training backends: a module each with three names, `unavailable`, `load` and `fit`.

`unavailable(profile) -> reason | None` may cause a fallback, before any weight is loaded; an error while
loading or training propagates. A module may also name `environment`, `unfit` or `gated_delta`.
"""

import importlib
from pathlib import Path
from types import ModuleType

from core import fla_trial
from core.errors import UserError, did_you_mean
from core.profile import Profile

NAMES = ("mlx", "unsloth", "plain")
SHARDED = "plain"
"""The one that shares a model out over several processes."""


def module(name: str) -> ModuleType:
    """The backend's module; UserError on an unknown name."""
    if name not in NAMES:
        raise UserError(
            f"BACKEND={name}: no such backend{did_you_mean(name, NAMES)}; have {', '.join(NAMES)}"
        )
    return importlib.import_module(f"trainer.backends.{name}")


def environment(name: str, out: Path) -> dict[str, str]:
    """What the backend needs in the environment of its process; `out` is the run's directory, for caches."""
    own = getattr(module(name), "environment", None)
    return own(out) if own else {}


def _unfit(name: str) -> str | None:
    """Why the backend is not taken unasked, although it could be."""
    own = getattr(module(name), "unfit", None)
    return own() if own else None


def gated_delta(name: str, tokens: int) -> str:
    """Which rule Gated DeltaNet layers run in the backend, for rows of `tokens`, and why."""
    own = getattr(module(name), "gated_delta", None)
    return own() if own else fla_trial.rule(tokens)


def choose(profile: Profile, forced: str, processes: int = 1) -> tuple[str, dict[str, str]]:
    """The backend to train with, and why each one before it cannot be used.

    `forced` is the setting BACKEND. Raises UserError where the forced one, or every one, is unavailable.
    """
    reasons: dict[str, str] = {}
    for name in [forced] if forced else profile.backends:
        reason = module(name).unavailable(profile) or ("" if forced else _unfit(name)) or None
        if processes > 1 and name != SHARDED:
            reason = f"it trains in one process; NODES times NPROC is {processes}"
        if reason is None:
            return name, reasons
        reasons[name] = reason
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise UserError(f"no backend can train PROFILE={profile.name} here ({listed})")
