"""A base read shard by shard is the one that transformers loads, without its files in the page cache."""

import shutil

import pytest
import torch

from core import shards
from core.generate import load_model
from trainer.backends import streamed


def tensors_of(model) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_model_is_transformers_own(base_dir, dtype):
    ours, theirs = streamed.load(base_dir, dtype, 64), load_model(base_dir, dtype)
    assert ours is not None
    one, two = tensors_of(ours), tensors_of(theirs)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert tensor.dtype == two[name].dtype, name
        assert torch.equal(tensor, two[name]), name
    ids = torch.arange(40).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(ours(input_ids=ids).logits, theirs(input_ids=ids).logits)
    assert not ours.training


def test_names_that_transformers_must_convert_are_left_to_it(base_dir, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(base_dir, other)
    for file in shards.shard_files(base_dir):
        (other / file.name).unlink()
    (other / shards.INDEX).unlink()
    renamed = {}
    from safetensors.torch import load_file

    for file in shards.shard_files(base_dir):
        renamed |= {n.replace(".language_model.", ".text."): t for n, t in load_file(file).items()}
    shards.write_checkpoint(other, renamed, max_shard_bytes=1 << 30)
    assert streamed.load(other, "float32", 64) is None


def test_let_go_drops_the_page_cache(tmp_path):
    import mmap

    file = tmp_path / "shard"
    file.write_bytes(b"x" * (8 << 20))
    with file.open("rb") as handle:
        import os

        os.fsync(handle.fileno())
    streamed.let_go(file)
    resident = _resident(file, mmap.PAGESIZE)
    if resident is None:
        pytest.skip("no mincore here")
    assert resident < 0.1


def _resident(file, page: int) -> float | None:
    """Share of a file's pages that are in the page cache (mincore(2)); None where it cannot be asked."""
    import ctypes
    import mmap

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mincore"):
        return None
    size = file.stat().st_size
    with file.open("r+b") as handle, mmap.mmap(handle.fileno(), size) as mapped:
        found = (ctypes.c_ubyte * (size // page))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), found):
            return None
        share = sum(one & 1 for one in found) / len(found)
        del address
    return share
