"""A base whose weights are shared out over the processes of a training: FSDP2, loaded without a whole copy.

Every process builds the model without memory, lets FSDP2 divide each frozen parameter by rows, and reads its
own rows from the checkpoint: nothing is loaded twice, broadcast, or gathered before the first step. The
adapter is whole in every process, its gradients averaged by DDP; so it is saved and resumed as by one.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import shards
from core.errors import UserError
from core.profile import Profile
from core.progress import Progress
from trainer.backends import streamed

if TYPE_CHECKING:
    from torch import Tensor

PEFT_PREFIX, WRAPPED = "base_model.model.", ".base_layer"


def join() -> Any:
    """Meet the other processes; the device that this one trains on."""
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2 // int(os.environ["LOCAL_WORLD_SIZE"])))
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    return device


def shard(model: Any, profile: Profile, device: Any) -> None:
    """Divide a PEFT model that is still without memory; its parameters then have memory but no values.

    A group for each decoder layer, which is gathered while it runs, one for the vision tower, which text
    never gathers, and one for the rest.
    """
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    adapter = {parameter for parameter in model.parameters() if parameter.requires_grad}
    groups = list(model.get_submodule(PEFT_PREFIX + profile.layers_prefix))
    if profile.vision_prefix:
        groups.append(model.get_submodule(PEFT_PREFIX + profile.vision_prefix.rstrip(".")))
    for module in [*groups, model]:
        fully_shard(module, ignored_params=adapter)
    model.to_empty(device=device)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
    # What DDP, which the trainer wraps around, is to leave alone: all but the adapter.
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [*frozen, *buffers])


def read_weights(model: Any, checkpoint: Path) -> None:
    """Fill the frozen parameters from the checkpoint's shards, in each process its own rows alone.

    UserError where the checkpoint has no tensor of a parameter's name and shape.
    """
    import torch
    from safetensors import safe_open

    infos = shards.read_checkpoint(checkpoint)
    wanted: dict[Path, dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            continue
        stored = name.removeprefix(PEFT_PREFIX).replace(WRAPPED, "")
        info = infos.get(stored)
        if info is None or tuple(info.shape) != tuple(parameter.shape):
            shape = list(parameter.shape)
            raise UserError(f"{checkpoint}: no tensor {stored} {shape}: train with NPROC=1 NODES=1")
        wanted.setdefault(info.file, {})[stored] = parameter
    progress = Progress("load: shards", len(wanted))
    with torch.no_grad():
        for file, parameters in sorted(wanted.items()):
            with safe_open(file, framework="pt") as tensors:
                for stored, parameter in parameters.items():
                    _fill(parameter, tensors.get_slice(stored))
            streamed.let_go(file)
            progress.step()
    progress.close()


def _fill(parameter: "Tensor", whole: Any) -> None:
    """Copy this process's rows of a parameter from anything that can be sliced like it."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    placed: Any = parameter
    shape, start = compute_local_shape_and_global_offset(placed.shape, placed.device_mesh, placed.placements)
    rows = tuple(slice(first, first + count) for first, count in zip(start, shape, strict=True))
    placed.to_local().copy_(whole[rows])
