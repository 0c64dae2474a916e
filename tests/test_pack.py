"""Our quantiser against compressed-tensors' own path: the same bytes for every BF16 value."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("compressed_tensors")
import numpy as np  # noqa: E402  (needs torch)

from quant.quantising import pack  # noqa: E402


def finite() -> Any:
    """Every finite BF16 value."""
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    return values[values.isfinite()]


def library(weight: Any, global_scale: Any) -> tuple[Any, Any]:
    """weight_packed and weight_scale as llm-compressor computes and saves them."""
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams

    scheme = preset_name_to_scheme("NVFP4", ["Linear"])
    assert scheme.weights is not None
    groups = weight.unflatten(-1, (-1, 16))
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, global_scale=global_scale)
    state = {"weight": weight, "weight_scale": scale, "weight_global_scale": global_scale}
    found = NVFP4PackedCompressor.compress(state, scheme)
    return found["weight_packed"].numpy(), found["weight_scale"].view(torch.uint8).numpy()


def global_scale(weight: Any) -> Any:
    """The library's, from the largest magnitude."""
    from compressed_tensors.quantization.utils import generate_gparam

    largest = weight.abs().max().reshape(1)
    return generate_gparam(-largest, largest)


def check(weight: Any, scale: Any) -> None:
    packed, scales = library(weight, scale)
    ours = pack.quantize(weight, scale.item())
    np.testing.assert_array_equal(ours[0], packed)
    np.testing.assert_array_equal(ours[1], scales)
    np.testing.assert_array_equal(pack.scales(weight, scale.item()), scales)


def test_global_scales_are_the_library_s() -> None:
    for value in finite().abs().unique()[::23]:
        weight = value.reshape(1, 1)
        assert pack.largest(weight) == value.item()
        assert pack.global_scale(value.item()) == global_scale(weight).item()


@pytest.mark.parametrize("exponent", [-126, -20, -6, 0, 8, 120])
def test_every_value_is_quantised_as_by_the_library(exponent: int) -> None:
    values = finite()
    values = values[values.abs() <= 2.0**exponent].flip(0)
    values = values[: len(values) // 16 * 16]
    shuffled = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(exponent))]
    for weight in (values.view(-1, 16), shuffled.view(-1, 16)):
        check(weight, global_scale(weight))
        check(weight, global_scale(weight) * 0.37)  # a fused partner has the larger values


@pytest.mark.parametrize("columns", [16, 208])
def test_weights_as_models_have_them(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "BLOCK", 1024)  # several blocks, the last one not full
    generator = torch.Generator().manual_seed(columns)
    weight = (torch.randn(77, columns, generator=generator) * 0.02).bfloat16()
    weight[3], weight[5, 3], weight[::2, 7] = 0.0, 1.5, -0.0
    check(weight, global_scale(weight))


def test_a_matrix_of_zeros() -> None:
    weight = torch.zeros(2, 32, dtype=torch.bfloat16)
    assert pack.global_scale(pack.largest(weight)) == 1.0
    check(weight, torch.tensor([1.0]))


def test_dense_values_are_the_library_s_unpacked_and_scaled() -> None:
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8

    weight = (torch.randn(8, 64, generator=torch.Generator().manual_seed(1)) * 0.02).bfloat16()
    scale = pack.global_scale(pack.largest(weight))
    packed, scales = pack.quantize(weight, scale)
    values = unpack_fp4_from_uint8(torch.from_numpy(packed), 8, 64, dtype=torch.float32)
    factors = torch.from_numpy(scales).view(torch.float8_e4m3fn).float() / scale
    found = pack.dense(packed, scales, scale)
    torch.testing.assert_close(found, values * factors.repeat_interleave(16, 1), rtol=0, atol=0)
    assert (found - weight.float()).norm() < 0.12 * weight.float().norm()
