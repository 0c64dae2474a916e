"""What vLLM's CPU build lacks for the tiny checkpoints, stood in for: a vLLM plugin (`vllm.general_plugins`).

Never part of what Forja gives a user: on a GPU vLLM has kernels of its own for all of it.
"""

# pyright: reportMissingImports=false

from typing import Any

KERNEL_WIDTHS = (64, 128)
"""Head dimensions that vLLM's CPU kernel for Gated DeltaNet's prefill takes."""


def register() -> None:
    """Put the stand-ins in place; vLLM calls this in each of its processes before a model is loaded."""
    import vllm._custom_ops as ops
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        ops.chunk_gated_delta_rule_cpu = widened(ops.chunk_gated_delta_rule_cpu)
        _load_nvfp4()


def widened(kernel: Any) -> Any:
    """The prefill kernel for heads that are too narrow for it: zeros fill them up, the result is cut back.

    Exact: zeros change neither the L2 norm of a query or key nor a product; the kernel's 1 / sqrt(width) is
    put right. States, [slots, heads, d, d], are written in place, as the kernel does.
    """
    import torch
    from torch.nn.functional import pad

    def rule(
        *, query: Any, key: Any, value: Any, initial_state: Any, initial_state_indices: Any, **rest: Any
    ) -> tuple[Any, Any]:
        width = query.shape[-1]
        wider = next((w for w in KERNEL_WIDTHS if w >= width), width)
        if wider == width:
            rest |= {"initial_state": initial_state, "initial_state_indices": initial_state_indices}
            return kernel(query=query, key=key, value=value, **rest)
        more = (0, wider - width)
        slots = initial_state_indices.long()
        states = pad(initial_state[slots], more * 2).contiguous()
        out, _ = kernel(
            query=pad(query, more),
            key=pad(key, more),
            value=pad(value, more),
            initial_state=states,
            initial_state_indices=torch.arange(len(slots), dtype=torch.int32),
            **rest,
        )
        initial_state[slots] = states[..., :width, :width]
        return out[..., :width] * (wider / width) ** 0.5, initial_state

    return rule


def _load_nvfp4() -> None:
    """Let NVFP4 checkpoints load: vLLM's slow reference of the format, which it keeps from CPUs.

    It loads, which is what is checked; to generate with it would take Triton.
    """
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.fused_moe.experts import nvfp4_emulation_moe
    from vllm.platforms import PlatformEnum

    linear._POSSIBLE_NVFP4_KERNELS[PlatformEnum.CPU] = [linear.EmulationNvFp4LinearKernel]
    for value in vars(nvfp4_emulation_moe).values():
        if getattr(value, "__module__", "") == nvfp4_emulation_moe.__name__ and hasattr(
            value, "_supports_current_device"
        ):
            value._supports_current_device = staticmethod(lambda: True)
