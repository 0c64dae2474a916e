"""Checkpoints through vLLM's own loader, as a server would load them: it runs in .venv-serve.

    python load.py <checkpoint> ...

A JSON line for each: {"refused": why}, or {"quantised", "plain", "draft"}: the modules that vLLM keeps in
NVFP4, those it keeps as they are, and the types of the MTP draft's weights, loaded as --speculative-config
loads them. The plugin stand_ins lets NVFP4 load on a CPU.
"""

# pyright: reportMissingImports=false

import json
import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def main() -> None:
    """Load each checkpoint in turn, in one process."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    torch.accelerator.empty_cache = lambda: None  # as vLLM's CPU worker does
    for path in sys.argv[1:]:
        try:
            config = EngineArgs(
                model=path,
                enforce_eager=True,
                max_model_len=512,
                enable_prefix_caching=False,
                # Without this vLLM leaves what a quantised checkpoint lacks uninitialised, and says nothing.
                model_loader_extra_config={"enable_weights_track": True},
                speculative_config={"method": "mtp", "num_speculative_tokens": 1},
            ).create_engine_config()
            with set_current_vllm_config(config):
                _alone()
                found = loaded(config)
        except Exception as error:
            found = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), flush=True)


def _alone() -> None:
    """This process as the whole group, which vLLM's layers ask for."""
    import torch
    from vllm import distributed

    if not torch.distributed.is_initialized():
        place = f"file://{tempfile.mkdtemp()}/group"
        distributed.init_distributed_environment(1, 0, place, 0, "gloo")
        distributed.ensure_model_parallel_initialized(1, 1)


def loaded(config: Any) -> dict[str, list[str]]:
    """What vLLM made of target and draft."""
    from vllm.model_executor.model_loader import get_model

    target = get_model(vllm_config=config)
    draft = get_model(vllm_config=config, model_config=config.speculative_config.draft_model_config)
    kinds: dict[str, list[str]] = {"quantised": [], "plain": []}
    for name, module in target.named_modules():
        method = type(getattr(module, "quant_method", None)).__name__
        if method.startswith("Unquantized"):
            kinds["plain"].append(name)
        elif any(True for _ in module.parameters(recurse=False)) and method.startswith("CompressedTensors"):
            kinds["quantised"].append(name)
    return {**kinds, "draft": sorted({str(weight.dtype) for weight in draft.parameters()})}


if __name__ == "__main__":
    main()
