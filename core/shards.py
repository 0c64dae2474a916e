"""safetensors checkpoints by their headers: names, shapes, byte ranges; no tensor is loaded.

Format: 8 bytes little-endian header length, a JSON header, the tensors' bytes
(huggingface/safetensors, README, "Format").
"""

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.artifacts import write_atomically
from core.errors import UserError

if TYPE_CHECKING:
    import torch

SINGLE = "model.safetensors"
INDEX = SINGLE + ".index.json"
MOST_HEADER_BYTES = 100_000_000
FORMATS = {"pt", "tf", "flax", "np", "mlx"}
"""What `__metadata__` may name as the writer's framework; transformers refuses others as well."""
ITEM_BYTES = {
    "C64": 8, "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4,
    "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "F8_E8M0": 1,
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies: `[start, stop)` are offsets into `file`."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one shard, by name, in the file's order.

    As strict as the format: the tensors cover the file from the header to its end without gap or
    overlap, no name comes twice. Raises UserError when the file is missing, truncated, or its header
    is not one, and on a dtype that is not in `ITEM_BYTES`.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
            if length > size - 8:
                raise UserError(f"{path}: truncated shard ({size} bytes); fetch or make it again")
            text = file.read(length) if length <= MOST_HEADER_BYTES else b""
        if not text.startswith(b"{"):
            raise ValueError
        header = json.loads(text, object_pairs_hook=lambda pairs: _unique(path, pairs))
        _check_metadata(header.pop("__metadata__", {}))
        tensors = [_tensor(name, path, entry, 8 + length) for name, entry in header.items()]
    except FileNotFoundError:
        raise UserError(f"{path}: no such shard; fetch or make the checkpoint again") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path}: not a safetensors file") from None
    tensors.sort(key=lambda info: (info.start, info.stop))
    end = 8 + length
    for info in tensors:
        if info.start != end:
            raise UserError(
                f"{path}: {info.name} starts at byte {info.start}, expected {end}: damaged header"
            )
        end = info.stop
    if end > size:
        raise UserError(f"{path}: truncated shard ({size} bytes of {end}); fetch or make it again")
    if end < size:
        raise UserError(f"{path}: {size - end} bytes belong to no tensor; fetch or make it again")
    return {info.name: info for info in tensors}


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UserError(f"{path}: {name} stands twice in the header; fetch or make it again")
        found[name] = value
    return found


def _check_metadata(metadata: dict[str, str]) -> None:
    if metadata and metadata["format"] not in FORMATS:
        raise ValueError
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError


def _tensor(name: str, path: Path, entry: dict[str, Any], data: int) -> TensorInfo:
    dtype, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if dtype not in ITEM_BYTES:
        raise UserError(f"{path}: {name} is {dtype}; have {', '.join(ITEM_BYTES)}")
    if start < 0 or any(n < 0 for n in shape) or stop - start != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError
    return TensorInfo(name, path, dtype, shape, data + start, data + stop)


def shard_files(checkpoint: Path, single: str = SINGLE) -> list[Path]:
    """The shard files of a checkpoint, from its index or the file named `single`.

    An adapter is one as well, with `single="adapter_model.safetensors"`. Raises UserError where
    there is neither, or the index is none.
    """
    index = checkpoint / f"{single}.index.json"
    if index.exists():
        return [checkpoint / name for name in sorted(set(_weight_map(index).values()))]
    if (checkpoint / single).exists():
        return [checkpoint / single]
    raise UserError(f"{checkpoint}: no {index.name} and no {single}")


def read_checkpoint(checkpoint: Path, single: str = SINGLE) -> dict[str, TensorInfo]:
    """Every tensor of a checkpoint, by name; `single` as in `shard_files`.

    Raises UserError where the index and the shards disagree, in either direction.
    """
    tensors: dict[str, TensorInfo] = {}
    for file in shard_files(checkpoint, single):
        for name, info in read_header(file).items():
            if name in tensors:
                both = f"{tensors[name].file.name} and in {file.name}"
                raise UserError(f"{checkpoint}: {name} stands in {both}")
            tensors[name] = info
    index = checkpoint / f"{single}.index.json"
    if index.exists():
        odd = set(_weight_map(index).items()) ^ {(name, info.file.name) for name, info in tensors.items()}
        if odd:
            name, file = min(odd)
            what = f"{len(odd)} tensors differ between {index.name} and the shards"
            raise UserError(f"{checkpoint}: {what}, {name} in {file} the first; fetch it again")
    return tensors


def read_bytes(info: TensorInfo) -> bytes:
    """The raw bytes of one tensor."""
    with info.file.open("rb") as file:
        file.seek(info.start)
        return file.read(info.stop - info.start)


def write_checkpoint(directory: Path, tensors: Mapping[str, "torch.Tensor"], *, max_shard_bytes: int) -> None:
    """Write tensors in the hub's layout: numbered shards in the given order, and an index.

    Shards hold at most `max_shard_bytes` unless one tensor alone is larger. All can read the files.
    """
    from safetensors.torch import save_file

    groups: list[dict[str, Any]] = [{}]
    filled = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if groups[-1] and filled + size > max_shard_bytes:
            groups.append({})
            filled = 0
        groups[-1][name] = tensor.contiguous()
        filled += size
    weight_map = {}
    for number, group in enumerate(groups, 1):
        file = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        save_file(group, directory / file, metadata={"format": "pt"})
        (directory / file).chmod(0o644)
        weight_map |= dict.fromkeys(group, file)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_index(directory, weight_map, total)


def write_index(directory: Path, weight_map: Mapping[str, str], total_size: int) -> None:
    """Write `model.safetensors.index.json`; `total_size` is in bytes."""
    index = {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(weight_map.items()))}
    write_atomically(directory / INDEX, json.dumps(index, indent=2) + "\n")


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        if not all(isinstance(name, str) and Path(name).name == name for name in found.values()):
            raise ValueError  # a path would lead out of the checkpoint
        return found
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{index}: not a shard index; fetch the checkpoint again") from None


def match_names(names: Iterable[str], layers_prefix: str, module_path: str) -> list[str]:
    """Names of the weights `<layers_prefix>.<N>.<module_path>.weight`, sorted."""
    head, tail = layers_prefix + ".", f".{module_path}.weight"
    return sorted(
        n for n in names if n.startswith(head) and n.endswith(tail) and n[len(head) : -len(tail)].isdigit()
    )
