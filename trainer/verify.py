"""`make verify`: check the machine and the base checkpoint; loads no weights and changes nothing."""

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

from core import config, errors
from core import machine as kinds
from core.errors import UserError
from core.profile import Profile
from core.settings import VerifySettings
from trainer import backends
from trainer.checks import checkpoint, families, machine, tokenizer
from trainer.checks.check import Check, table
from trainer.checks.checkpoint import Checkpoint
from trainer.checks.packages import check_packages, read_constraints

PROJECT, CONSTRAINTS = Path("pyproject.toml"), Path("constraints.txt")


def main(words: list[str]) -> int:
    """Print the table; exit code 0, or 2 where a check fails."""
    settings = config.parse(VerifySettings, words)
    base = checkpoint.read(settings.base_dir)
    checks = [
        *machine_checks(settings, base),
        check_backend(settings.profile, settings.backend),
        *checkpoint_checks(settings.profile, base),
    ]
    print(table(checks, colour=sys.stdout.isatty()))
    return errors.MISTAKE if any(check.verdict == "fail" for check in checks) else errors.DONE


def machine_checks(settings: VerifySettings, base: Checkpoint) -> list[Check]:
    """The rows on this machine, its packages, and room for the base."""
    here, profile, models_dir = machine.look(), settings.profile, settings.models_dir
    required = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["requires-python"]
    requirements = kinds.requirements(here.kind)
    free = machine.free_space(models_dir)
    return [
        machine.check_python(here, required),
        machine.check_system(here),
        machine.check_memory(here, families.training_bytes(profile, base.tensors)),
        machine.check_disk(models_dir, free, base.bytes, settings.merged_dir),
        machine.check_cores(here),
        machine.check_cuda(here, profile),
        machine.check_torch(here, requirements),
        machine.check_triton(here),
        machine.check_attention(here),
        machine.check_fla(here),
        machine.check_unsloth(here, profile),
        check_packages(here.versions, requirements, read_constraints(CONSTRAINTS)),
    ]


def check_backend(profile: Profile, forced: str) -> Check:
    """The backend that training will take; `forced` is the setting BACKEND."""
    try:
        name, skipped = backends.choose(profile, forced)
    except UserError as error:
        return Check("backend", "fail", "none", str(error))
    return Check("backend", "ok", name, "; ".join(f"not {other}: {why}" for other, why in skipped.items()))


def checkpoint_checks(profile: Profile, base: Checkpoint) -> list[Check]:
    """The rows on the base checkpoint; those on its tensors need its shards and its config to be readable."""
    shards, model = checkpoint.check_shards(profile, base), checkpoint.check_config(profile, base)
    words = [tokenizer.check_template(profile, base.path), tokenizer.check_tokens(profile, base.path)]
    tensors = [
        *(families.check_family(profile, base, family) for family in profile.families),
        families.check_trainable(profile, base),
        *([checkpoint.check_mtp(profile, base)] if profile.mtp_prefix else []),
        *([checkpoint.check_vision(profile, base)] if profile.vision_prefix else []),
        checkpoint.check_dtypes(profile, base),
    ]
    faulty = [name for name, fault in (("shards", base.shards_fault), ("config", base.config_fault)) if fault]
    if faulty:
        advice = f"mend {' and '.join(faulty)} first"
        tensors = [replace(check, verdict="warn", found="not looked at", advice=advice) for check in tensors]
    rows = [shards, model, *tensors, *words]
    if not checkpoint.exists(base.path):
        rows = [replace(row, verdict="warn", found="not yet: make base", advice="") for row in rows]
    return rows


if __name__ == "__main__":
    errors.run(main)
