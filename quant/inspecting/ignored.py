"""Which modules vLLM takes for unquantised: the ignore list of `quantization_config`, read by its rules.

Source: vLLM 0.32, `quantization/compressed_tensors/{compressed_tensors,utils}.py` and `models/qwen3_vl.py`.
Names of modules are translated to the server's and compared whole; regular expressions are not translated,
and match a beginning of the server's name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

SERVER_PREFIXES = {
    "model.visual.": "visual.",
    "lm_head": "language_model.lm_head",
    "model.language_model.": "language_model.model.",
}
"""How vLLM's multimodal class renames what the checkpoint calls."""
NEVER = ("embed_tokens", "pos_embed", "lm_head", "mlp.gate", "mlp.shared_expert_gate")
"""Ends of names of matrices that vLLM keeps unquantised whatever the list says."""


@dataclass(frozen=True)
class Ignored:
    """The `quantization_config` of a checkpoint; empty where it has none."""

    config: Mapping[str, Any]

    @cached_property
    def names(self) -> frozenset[str]:
        """The entries that are names."""
        return frozenset(_server_name(entry) for entry in self.entries if not entry.startswith("re:"))

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """The entries that are regular expressions."""
        return tuple(re.compile(entry[3:]) for entry in self.entries if entry.startswith("re:"))

    @property
    def entries(self) -> list[str]:
        """The list as it is written."""
        return list(self.config.get("ignore") or ())

    def __contains__(self, module: str) -> bool:
        """Whether the list names the module."""
        return self._matches(_server_name(module))

    def expects_scales(self, module: str) -> bool:
        """Whether vLLM looks for a Linear's quantised weight, because nothing exempts it."""
        return bool(self.config) and not module.endswith(NEVER) and module not in self

    @cached_property
    def _matches(self) -> Any:
        return cache(lambda name: name in self.names or any(p.match(name) for p in self.patterns))


def _server_name(name: str) -> str:
    for ours, theirs in SERVER_PREFIXES.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name
