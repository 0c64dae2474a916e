"""Training backends: a module each with three names, `unavailable`, `load` and `fit`.

`unavailable(profile) -> reason | None` may cause a fallback, before any weight is loaded; an error while
loading or training propagates.
"""

import importlib
from types import ModuleType

from core.errors import UserError, did_you_mean
from core.profile import Profile

NAMES = ("unsloth", "plain")


def module(name: str) -> ModuleType:
    """The backend's module; UserError on an unknown name."""
    if name not in NAMES:
        raise UserError(
            f"BACKEND={name}: no such backend{did_you_mean(name, NAMES)}; have {', '.join(NAMES)}"
        )
    return importlib.import_module(f"trainer.backends.{name}")


def choose(profile: Profile, forced: str) -> tuple[str, dict[str, str]]:
    """The backend to train with, and why each one before it cannot be used.

    `forced` is the setting BACKEND. Raises UserError where the forced one, or every one, is unavailable.
    """
    reasons: dict[str, str] = {}
    for name in [forced] if forced else profile.backends:
        reason = module(name).unavailable(profile)
        if reason is None:
            return name, reasons
        reasons[name] = reason
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise UserError(f"no backend can train PROFILE={profile.name} here ({listed})")
