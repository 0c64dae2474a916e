"""safetensors checkpoints: our reader against the library's, and every broken shard refused."""

import json
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import shards
from core.errors import UserError

if TYPE_CHECKING:
    import torch

DTYPES = {
    "C64": "complex64", "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


def tensor(dtype: str, shape: list[int]) -> "torch.Tensor":
    """A tensor with a different byte pattern in every element, as far as bytes go."""
    import torch

    kind: torch.dtype = getattr(torch, DTYPES[dtype])
    count = torch.Size(shape).numel()
    data = torch.arange(count * kind.itemsize, dtype=torch.int64).remainder(251).to(torch.uint8)
    if dtype == "BOOL":
        return data.remainder(2).bool().reshape(shape)
    return data.view(kind).reshape(shape) if count else torch.empty(shape, dtype=kind)


def raw(one: "torch.Tensor") -> bytes:
    """The bytes of a tensor in memory."""
    import torch

    return one.contiguous().flatten().view(torch.uint8).numpy().tobytes() if one.numel() else b""


def small(path: Path) -> dict[str, "torch.Tensor"]:
    """Write a shard of three small tensors."""
    from safetensors.torch import save_file

    tensors = {
        "a.weight": tensor("BF16", [2, 3]),
        "b.bias": tensor("F32", [2]),
        "c": tensor("U8", [3]),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    return tensors


def header(path: Path, entries: Any, data: bytes = b"") -> Path:
    """Write a file with this JSON as its header."""
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


# ---- one shard ---------------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=8),
        st.tuples(st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 3), max_size=3)),
        max_size=4,
    )
)
@settings(deadline=None, max_examples=100)
def test_headers_and_bytes_are_those_of_the_library(drawn: dict[str, Any]) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    tensors = {name: tensor(*kind) for name, kind in drawn.items()}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        save_file(tensors, path, metadata={"format": "pt"})
        found = shards.read_header(path)
        with safe_open(path, "pt") as theirs:
            assert found.keys() == set(theirs.keys())
            for name, info in found.items():
                view = theirs.get_slice(name)
                assert (info.dtype, list(info.shape)) == (view.get_dtype(), view.get_shape())
                assert shards.read_bytes(info) == raw(tensors[name])
                assert (info.name, info.file) == (name, path)


def test_every_dtype_of_the_library_is_known() -> None:
    from safetensors.torch import _TYPES

    assert set(_TYPES) <= set(shards.ITEM_BYTES)
    assert all(shards.ITEM_BYTES[name] == dtype.itemsize for name, dtype in _TYPES.items())


def test_a_shard_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    small(whole)
    data = whole.read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        with pytest.raises(UserError, match="truncated shard"):
            shards.read_header(cut)
    cut.write_bytes(data)
    assert len(shards.read_header(cut)) == 3


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "entries",
    [
        [],
        "text",
        {"x": []},
        {"x": {}},
        {"x": GOOD | {"shape": 2}},
        {"x": GOOD | {"shape": ["2"]}},
        {"x": GOOD | {"shape": [3]}},
        {"x": GOOD | {"data_offsets": [0]}},
        {"x": GOOD | {"data_offsets": [0, 4]}},
        {"x": GOOD | {"data_offsets": [-8, 0]}},
        {"x": GOOD | {"dtype": ["F32"]}},
    ],
)
def test_what_is_no_header_is_refused(entries: Any, tmp_path: Path) -> None:
    path = header(tmp_path / "x.safetensors", entries, bytes(8))
    with pytest.raises(UserError, match="not a safetensors file"):
        shards.read_header(path)


TWO = {"x": GOOD, "y": GOOD | {"data_offsets": [8, 16]}}


@pytest.mark.parametrize(
    ("entries", "size", "message"),
    [
        (TWO, 24, "8 bytes belong to no tensor"),
        ({"x": GOOD, "y": GOOD}, 16, r"y starts at byte \d+, expected"),
        ({"x": GOOD, "y": GOOD | {"data_offsets": [16, 24]}}, 24, r"y starts at byte \d+, expected"),
        ({"y": GOOD | {"data_offsets": [8, 16]}}, 16, r"y starts at byte \d+, expected"),
        ({"x": GOOD, "__metadata__": {"format": "qt"}}, 8, "not a safetensors file"),
        ({"x": GOOD, "__metadata__": {"gormat": "pt"}}, 8, "not a safetensors file"),
        ({"x": GOOD, "__metadata__": {"format": "pt", "n": 1}}, 8, "not a safetensors file"),
        ({"x": GOOD | {"shape": [-1, -2]}}, 8, "not a safetensors file"),
    ],
)
def test_bytes_that_no_tensor_or_two_claim_are_refused(
    entries: Any, size: int, message: str, tmp_path: Path
) -> None:
    assert len(shards.read_header(header(tmp_path / "good.safetensors", TWO, bytes(16)))) == 2
    with pytest.raises(UserError, match=message):
        shards.read_header(header(tmp_path / "x.safetensors", entries, bytes(size)))


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    one = json.dumps(GOOD)
    text = f'{{"x": {one}, "x": {one}}}'.encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(UserError, match="x stands twice in the header"):
        shards.read_header(path)


def test_a_flipped_bit_of_a_header_is_refused_or_changes_a_name(tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    small(whole)
    data = whole.read_bytes()
    before = shards.read_header(whole)
    damaged = tmp_path / "whole" / "whole.safetensors"
    damaged.parent.mkdir()
    refused = renamed = 0
    for bit in range(0, 8 * (8 + int.from_bytes(data[:8], "little")), 3):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.write_bytes(flipped)
        try:
            found = shards.read_header(damaged)
        except UserError:
            refused += 1
            continue
        renamed += found.keys() != before.keys()
        assert found.keys() != before.keys()
    assert refused > 10 * renamed


@pytest.mark.parametrize("data", [b"PK\3\4" + bytes(100), struct.pack("<Q", 4) + b"\xff{}\xff"])
def test_another_kind_of_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"x\.safetensors: (truncated shard|not a safetensors)"):
        shards.read_header(path)


def test_an_unknown_dtype_is_named(tmp_path: Path) -> None:
    path = header(tmp_path / "x.safetensors", {"x": GOOD | {"dtype": "F4"}}, bytes(8))
    with pytest.raises(UserError, match="x is F4; have C64, "):
        shards.read_header(path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.safetensors: no such shard"):
        shards.read_header(tmp_path / "gone.safetensors")


# ---- a checkpoint ------------------------------------------------------------------------------


def checkpoint(folder: Path) -> dict[str, "torch.Tensor"]:
    """Write a checkpoint of three tensors in two shards."""
    tensors = {
        "z": tensor("F32", [4]),
        "a": tensor("BF16", [4]),
        "m": tensor("U8", [30]),
    }
    shards.write_checkpoint(folder, tensors, max_shard_bytes=24)
    return tensors


def edit_index(folder: Path, change: Any) -> None:
    index = json.loads((folder / shards.INDEX).read_text())
    change(index["weight_map"])
    (folder / shards.INDEX).write_text(json.dumps(index))


def test_a_written_checkpoint_is_read_back_and_the_hubs_tools_agree(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    tensors = checkpoint(tmp_path)
    found = shards.read_checkpoint(tmp_path)
    assert found.keys() == tensors.keys()
    files = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert {n: i.file.name for n, i in found.items()} == {
        "z": files[0],
        "a": files[0],
        "m": files[1],
    }
    loaded = {name: one for file in files for name, one in load_file(tmp_path / file).items()}
    for name, one in tensors.items():
        assert shards.read_bytes(found[name]) == raw(one) == raw(loaded[name])
    index = json.loads((tmp_path / shards.INDEX).read_text())
    assert index["metadata"] == {"total_size": 16 + 8 + 30}


def test_shards_keep_to_the_limit_unless_one_tensor_alone_is_larger(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    sizes: dict[str, list[int]] = {}
    for info in shards.read_checkpoint(tmp_path).values():
        sizes.setdefault(info.file.name, []).append(info.stop - info.start)
    assert all(sum(found) <= 24 or len(found) == 1 for found in sizes.values())


def test_written_shards_can_be_read_by_all(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    modes = [file.stat().st_mode & 0o777 for file in tmp_path.glob("*.safetensors")]
    assert modes == [0o644, 0o644]


def test_a_single_file_is_a_checkpoint(tmp_path: Path) -> None:
    tensors = small(tmp_path / shards.SINGLE)
    assert shards.read_checkpoint(tmp_path).keys() == tensors.keys()


def test_an_empty_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model\.safetensors\.index\.json and no model\.safe"):
        shards.read_checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": ["abc"]}', "\xff"])
def test_what_is_no_index_is_refused(text: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / shards.INDEX).write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="not a shard index"):
        shards.read_checkpoint(tmp_path)


SECOND = "model-00002-of-00002.safetensors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.update(gone=SECOND), "1 tensors differ .*, gone in model-00002"),
        (lambda index: index.update(a=SECOND), "2 tensors differ .*, a in model-00001"),
        (lambda index: index.pop("a"), "1 tensors differ .*, a in model-00001"),
        (lambda index: index.update(x="model-00003.safetensors"), "00003.*: no such shard"),
    ],
    ids=["a tensor in no shard", "a tensor in another shard", "a tensor unlisted", "no such shard"],
)
def test_an_index_that_disagrees_with_the_shards_is_refused(
    change: Any, message: str, tmp_path: Path
) -> None:
    checkpoint(tmp_path)
    edit_index(tmp_path, change)
    with pytest.raises(UserError, match=message):
        shards.read_checkpoint(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    small(tmp_path / "one.safetensors")
    small(tmp_path / "two.safetensors")
    shards.write_index(tmp_path, {"a.weight": "one.safetensors", "c": "two.safetensors"}, 0)
    with pytest.raises(UserError, match=r"stands in one\.safetensors and in two\.safetensors"):
        shards.read_checkpoint(tmp_path)


# ---- names -------------------------------------------------------------------------------------

PREFIX = "model.language_model.layers"


def test_only_the_weights_of_a_module_in_decoder_layers_match() -> None:
    inside = [f"{PREFIX}.{n}.self_attn.q_proj.weight" for n in (0, 3, 11)]
    outside = [
        f"{PREFIX}.0.self_attn.q_proj.bias",
        f"{PREFIX}.0.self_attn.q_proj.weight_scale",
        f"{PREFIX}.0.self_attn.q_proj2.weight",
        f"{PREFIX}.0.x.self_attn.q_proj.weight",
        f"{PREFIX}.x.self_attn.q_proj.weight",
        f"{PREFIX}.self_attn.q_proj.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.weight",
        f"x.{PREFIX}.0.self_attn.q_proj.weight",
    ]
    found = shards.match_names([*outside, *reversed(inside)], PREFIX, "self_attn.q_proj")
    assert found == sorted(inside)
    assert shards.match_names(outside, PREFIX, "self_attn.q_proj") == []
