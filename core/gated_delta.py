"""Gated DeltaNet's chunked rule in plain PyTorch, fast where flash-linear-attention has no working kernel.

The recurrence, for one head (Yang et al., "Gated Delta Networks", arXiv:2412.06464, equation 10):

    S_t = exp(g_t) S_{t-1} + k_t u_t^T,   u_t = beta_t (v_t - exp(g_t) S_{t-1}^T k_t),   o_t = S_t^T q_t

A chunk of C tokens that starts from the state S is, with c the running sum of g inside the chunk,
D_ij = exp(c_i - c_j) for j <= i and 0 above, N the strictly lower part of (K K^T) * D and P = (Q K^T) * D:

    R = V - exp(c) K S,   (I + N diag(beta)) E = R,   U = beta E
    O = exp(c) Q S + P U,   S' = exp(c_C) S + (exp(c_C - c) K)^T U

The inverse is kept as I - X diag(beta) with (I + N diag(beta)) X = N, by substitution: doubling a Neumann
series overflows on alike keys. So nothing is divided by beta, and beta = 0 is exact. Queries and keys read
the state alike and are stacked as "readers": one product where there would be two.

The backward pass is written by hand. With y = (dO, -W), the gradient of what the readers read:

    dU = P^T dO + exp(c_C - c) K dS',   Z = dU - X^T (beta dU),   W = beta Z = dV,   dbeta = rowsum(Z * E)
    F' = y U^T * D (strict in its lower half),   dreaders = exp(c) y S^T + F' K
    dkeys as written = exp(c_C - c) U dS'^T + F'^T readers,   dS = exp(c_C) dS' + (exp(c) readers)^T y

and dc_i is what scales with exp(c_i) less what scales with exp(-c_i): <readers, dreaders> - <keys, dkeys as
written>. The forward pass keeps what it made of its inputs, or nothing when no gradient is wanted.
"""

import functools
import importlib.util
import inspect
import math
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

CACHED, LAUNCHED = 1 << 17, 1 << 24
"""Elements of a work tensor: what a core's cache holds, and what keeps an accelerator busy."""
EPS = 1e-6
"""Under the root of the l2 norm, as in transformers and fla."""


class _Span(NamedTuple):
    """`chunks` whole chunks of `size` tokens."""

    tokens: slice
    chunks: int
    size: int


class _Tile(NamedTuple):
    """Work that shares no state with other tiles: some heads of some rows, or of one packed sequence."""

    rows: slice
    heads: slice
    states: slice
    spans: list[_Span]


class _Block(NamedTuple):
    """What a span needs beside the states, kept for the backward pass; n chunks, G = rows x heads."""

    readers: Tensor  # [n, G, 2C, K] queries over keys, normalised, queries times K^-1/2
    factors: Tensor  # [n, G, 2C, 1] the factors that made them
    beta: Tensor  # [n, G, C, 1]
    decay: Tensor  # [n, G, C, 1] exp(c)
    rest: Tensor  # [n, G, C, 1] exp(c_C - c)
    pairwise: Tensor  # [n, G, C, C] D
    intra: Tensor  # [n, G, 2, C, C] P and X
    errors: Tensor  # [n, G, C, V] E, filled by the scan


def chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    chunk_size: int | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """transformers' `torch_chunk_gated_delta_rule`, any length, with packed sequences.

    Args:
        query, key: [B, T, H, K], any float dtype; the work is done in float32, in float64 for float64 values.
        value: [B, T, H, V].
        g: [B, T, H], log of the decay, <= 0; below the smallest normal number's log it counts as that.
        beta: [B, T, H].
        chunk_size: tokens a chunk, any; the results differ by rounding alone. None: by K, as measured.
        initial_state: [B, H, K, V], or [sequences, H, K, V] when packed; None is zeros.
        cu_seqlens: [sequences + 1] cumulative lengths of the sequences packed into the one row (B = 1).

    Returns: the output [B, T, H, V] in query's dtype, and the final states or None.
    """
    dtype = torch.float64 if value.dtype == torch.float64 else torch.float32
    sequences = key.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    if initial_state is None:
        initial_state = value.new_zeros(sequences, *key.shape[2:], value.shape[-1], dtype=dtype)
    chunk = chunk_size or min(64, max(16, key.shape[-1] // 2))
    tiles = _tiles(value, key.shape[-1], chunk, None if cu_seqlens is None else sequence_ends(cu_seqlens))
    with torch.autocast(value.device.type, enabled=False):
        out, final = _Rule.apply(
            query, key, value, g, beta, initial_state.to(dtype), tiles, use_qk_l2norm_in_kernel
        )
    return out, final if output_final_state else None


@functools.lru_cache(maxsize=1)
def sequence_ends(cu_seqlens: Tensor) -> list[int]:
    """The values of a batch's [sequences + 1] cumulative lengths.

    Read once a batch and not once a layer: on an accelerator, reading waits for all work before it. A tensor
    is told from another by identity, so one that was read must not be changed.
    """
    return cu_seqlens.tolist()


class _Rule(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        state: Tensor,
        tiles: list[_Tile],
        normalize: bool,
    ) -> tuple[Tensor, Tensor]:
        out = torch.empty(value.shape, dtype=query.dtype, device=value.device)
        final = torch.empty_like(state)
        keep = any(ctx.needs_input_grad)
        saved: list[Tensor] = []
        for tile in tiles:
            S = _part(state, tile).flatten(0, 1)
            chunks = sum(span.chunks for span in tile.spans)
            states = S.new_empty(1 + chunks if keep else 1, *S.shape)
            states[0] = S
            saved.append(states)
            for span in tile.spans:
                block = _block(query, key, g, beta, value.shape[-1], tile, span, state.dtype, normalize)
                read = _scan(block, _take(value, tile, span, state.dtype), states)
                _put(read, out, tile, span)
                if keep:
                    saved += block
                    states = states[span.chunks :]
            _part(final, tile).copy_(states[0].view_as(_part(final, tile)))
        if keep:
            ctx.save_for_backward(*saved)
        ctx.inputs = [(x.shape, x.dtype) for x in (query, key, value, g, beta)]
        ctx.tiles, ctx.normalize = tiles, normalize
        return out, final

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_out: Tensor, grad_final: Tensor
    ) -> tuple[Tensor | None, ...]:
        grads = [torch.empty(shape, dtype=dtype, device=grad_out.device) for shape, dtype in ctx.inputs]
        grad_state = torch.empty_like(grad_final)
        saved = iter(ctx.saved_tensors)
        with torch.autocast(grad_out.device.type, enabled=False):
            for tile in ctx.tiles:
                states = next(saved)
                blocks = [_Block(*islice(saved, len(_Block._fields))) for _ in tile.spans]
                dS = _part(grad_final, tile).flatten(0, 1).clone()
                for span, block in zip(reversed(tile.spans), reversed(blocks), strict=True):
                    dO = _take(grad_out, tile, span, dS.dtype)
                    found = _scan_back(block, states, dO, dS, ctx.normalize)
                    for grad, part in zip(grads, found, strict=True):
                        _put(part, grad, tile, span)
                    states = states[: -span.chunks]
                _part(grad_state, tile).copy_(dS.view_as(_part(grad_state, tile)))
        return (*grads, grad_state, None, None)


def _block(
    query: Tensor,
    key: Tensor,
    g: Tensor,
    beta: Tensor,
    value_dim: int,
    tile: _Tile,
    span: _Span,
    dtype: torch.dtype,
    normalize: bool,
) -> _Block:
    """What a span needs beside the states; `errors` is left for the scan to fill."""
    pair = [_view(x, tile, span) for x in (query, key)]
    n, rows, heads, C, K = pair[0].shape
    readers = torch.empty(n, rows, heads, 2 * C, K, dtype=dtype, device=key.device)
    factors = readers.new_ones(n, rows, heads, 2 * C, 1)
    for x, reader, factor in zip(pair, readers.chunk(2, 3), factors.chunk(2, 3), strict=True):
        if normalize:
            torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype, out=factor)
            factor.square_().add_(EPS).rsqrt_()
        if x is pair[0]:
            factor *= K**-0.5
        torch.mul(x, factor, out=reader)
    readers, factors = readers.flatten(1, 2), factors.flatten(1, 2)

    b = _take(beta, tile, span, dtype).unsqueeze(-1)
    # exp of less is as good as zero, and sums of very negative gates would cost their neighbours digits.
    c = _take(g, tile, span, dtype).clamp_min(math.log(torch.finfo(dtype).tiny)).cumsum(-1)
    above = torch.ones(C, C, dtype=torch.bool, device=key.device).triu(1)
    pairwise = (c.unsqueeze(-1) - c.unsqueeze(-2)).masked_fill_(above, -math.inf).exp_()

    intra = (readers @ readers[:, :, C:].transpose(-1, -2)).view(n, -1, 2, C, C)
    intra *= pairwise.unsqueeze(2)
    N = intra[:, :, 1]
    N.diagonal(dim1=-2, dim2=-1).zero_()
    # The diagonal of the left-hand side is taken as ones.
    N.copy_(torch.linalg.solve_triangular(N * b.transpose(-1, -2), N, upper=False, unitriangular=True))
    return _Block(
        readers=readers,
        factors=factors,
        beta=b,
        decay=c.exp().unsqueeze(-1),
        rest=(c[..., -1:] - c).exp().unsqueeze(-1),
        pairwise=pairwise,
        intra=intra,
        errors=readers.new_empty(n, rows * heads, C, value_dim),
    )


def _scan(block: _Block, value: Tensor, states: Tensor) -> Tensor:
    """Carry the state through the block's chunks; what the queries read, [n, G, C, V].

    `states` begins with the state before the block; where it has room, the state after each chunk follows,
    else the last one replaces the first.
    """
    readers, keys = block.readers, block.readers[:, :, block.beta.shape[2] :]
    n, G, C, V = value.shape
    read, written = value.new_empty(n, G, 2 * C, V), torch.empty_like(value)
    X = block.intra[:, :, 1]
    for i in range(n):
        before, after = (states[i], states[i + 1]) if len(states) > 1 else (states[0], states[0])
        torch.bmm(readers[i], before, out=read[i])
        R = torch.addcmul(value[i], block.decay[i], read[i, :, C:], value=-1)
        torch.baddbmm(R, X[i], block.beta[i] * R, alpha=-1, out=block.errors[i])
        torch.mul(block.beta[i], block.errors[i], out=written[i])
        torch.mul(before, block.decay[i, :, -1:], out=after)
        after.baddbmm_(keys[i].transpose(-1, -2), block.rest[i] * written[i])
    return torch.addcmul(block.intra[:, :, 0] @ written, block.decay, read[:, :, :C])


def _scan_back(
    block: _Block, states: Tensor, dO: Tensor, dS: Tensor, normalize: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, g and beta in the block; `dS` is carried back in place.

    The last n + 1 of `states` are those around the block's chunks.
    """
    n, G, C, V = dO.shape
    readers, keys, beta, decay = block.readers, block.readers[:, :, C:], block.beta, block.decay
    P, X = block.intra.unbind(2)
    states = states[-n - 1 :]
    written = beta * block.errors
    rest_written = block.rest * written
    y = torch.cat((dO, torch.empty_like(dO)), 2)
    y_decayed, dU, Z = torch.empty_like(y), P.transpose(-1, -2) @ dO, torch.empty_like(dO)
    dkeys, on_total = (
        torch.empty_like(readers[:, :, C:], memory_format=torch.contiguous_format),
        dS.new_empty(n, G),
    )
    for i in reversed(range(n)):
        torch.sum(states[i + 1] * dS, (-1, -2), out=on_total[i])
        torch.bmm(rest_written[i], dS.transpose(-1, -2), out=dkeys[i])
        dU[i].addcmul_(block.rest[i], keys[i] @ dS)
        torch.baddbmm(dU[i], X[i].transpose(-1, -2), beta[i] * dU[i], alpha=-1, out=Z[i])
        torch.mul(Z[i], -beta[i], out=y[i, :, C:])
        torch.mul(y[i].view(G, 2, C, V), decay[i].unsqueeze(1), out=y_decayed[i].view(G, 2, C, V))
        dS.mul_(decay[i, :, -1:]).baddbmm_(readers[i].transpose(-1, -2), y_decayed[i])

    dF = (y @ written.transpose(-1, -2)).view(n, G, 2, C, C)
    dF *= block.pairwise.unsqueeze(2)
    dF[:, :, 1].diagonal(dim1=-2, dim2=-1).zero_()
    dF = dF.view(n, G, 2 * C, C)
    dreaders = (y_decayed @ states[:-1].transpose(-1, -2)).add_(dF @ keys)
    dkeys += dF.transpose(-1, -2) @ readers

    on_readers = torch.sum(dreaders * readers, -1, keepdim=True)
    on_keys = torch.sum(dkeys * keys, -1, keepdim=True)
    dc = on_readers[:, :, :C] + on_readers[:, :, C:] - on_keys
    dc[:, :, -1, 0] += on_total
    dg = dc.squeeze(-1).flip(-1).cumsum(-1).flip(-1)
    dreaders[:, :, C:] += dkeys
    if normalize:
        on_readers[:, :, :C] *= readers.shape[-1]
        on_readers[:, :, C:] += on_keys
        dreaders.addcmul_(readers, on_readers, value=-1)
    dq, dk = dreaders.mul_(block.factors).chunk(2, 2)
    return dq, dk, -y[:, :, C:], dg, torch.sum(Z * block.errors, -1)


def _tiles(value: Tensor, key_dim: int, chunk: int, ends: list[int] | None) -> list[_Tile]:
    """The whole work, tiled so that the tensors of one span fit the cache; `ends` as cu_seqlens."""
    B, T, H, V = value.shape
    chunks = max(1, (CACHED if value.device.type == "cpu" else LAUNCHED) // (chunk * max(key_dim, V)))
    heads = min(H, chunks)
    rows = min(B, max(1, chunks // H))
    most = max(1, chunks // (heads * rows))
    if ends is None:
        runs = [(slice(b, min(b + rows, B)),) * 2 + (_spans(0, T, chunk, most),) for b in range(0, B, rows)]
    else:
        assert B == 1 and ends[0] == 0 and ends[-1] == T, f"cu_seqlens {ends} do not cover one row of {T}"
        runs = [
            (slice(0, 1), slice(i, i + 1), _spans(start, stop, chunk, most))
            for i, (start, stop) in enumerate(pairwise(ends))
        ]
    return [
        _Tile(rows, slice(h, min(h + heads, H)), states, spans)
        for rows, states, spans in runs
        for h in range(0, H, heads)
    ]


def _spans(start: int, stop: int, chunk: int, most: int) -> list[_Span]:
    """The tokens from `start` to `stop`: whole chunks, at most `most` a span, then one of what is left."""
    whole, left = divmod(stop - start, chunk)
    counts = [(min(most, whole - first), chunk) for first in range(0, whole, most)] + [(1, left)] * (left > 0)
    spans = []
    for chunks, size in counts:
        spans.append(_Span(slice(start, start + chunks * size), chunks, size))
        start += chunks * size
    return spans


def _view(x: Tensor, tile: _Tile, span: _Span) -> Tensor:
    """A tile's span of [B, T, H, ...] as [n, rows, heads, C, ...], sharing memory."""
    x = x[tile.rows, span.tokens, tile.heads].unflatten(1, (span.chunks, span.size))
    return x.movedim(1, 0).movedim(3, 2)


def _take(x: Tensor, tile: _Tile, span: _Span, dtype: torch.dtype) -> Tensor:
    """`_view` in its own memory, as [n, G, C, ...] of `dtype`."""
    return _view(x, tile, span).to(dtype, memory_format=torch.contiguous_format).flatten(1, 2)


def _put(x: Tensor, into: Tensor, tile: _Tile, span: _Span) -> None:
    """Write [n, G, C, ...] where `_take` would read it."""
    view = _view(into, tile, span)
    view.copy_(x.unflatten(1, view.shape[1:3]))


def _part(states: Tensor, tile: _Tile) -> Tensor:
    """The tile's part of [sequences, H, K, V]."""
    return states[tile.states, tile.heads]


def install(*, over_fla: bool = False) -> bool:
    """Plug the rule into transformers' Qwen3.5-MoE, models already built included; True where it is in force.

    fla's kernels stay where fla is installed, unless `over_fla`: it failed its trial on this machine. Then
    transformers' own step for single tokens takes the place of fla's too. Where causal_conv1d is missing, the
    short convolution before the rule keeps packed sequences apart as well. Call it again freely.
    """
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling

    if importlib.util.find_spec("causal_conv1d") is None:
        modeling.causal_conv1d_fn = _each_sequence(modeling.causal_conv1d_fn)
    if importlib.util.find_spec("fla") is not None and not over_fla:
        return False
    modeling.torch_chunk_gated_delta_rule = chunk_gated_delta_rule
    if over_fla:
        modeling.torch_recurrent_gated_delta_rule = inspect.unwrap(modeling.torch_recurrent_gated_delta_rule)
    return True


def _each_sequence(conv: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`conv` over [1, channels, T], each of the sequences that `cu_seq_lens_q` tells on its own."""
    if hasattr(conv, "each_sequence"):
        return conv

    @functools.wraps(conv)
    def apart(x: Tensor, *args: Any, cu_seq_lens_q: Tensor | None = None, **kwargs: Any) -> Tensor:
        if cu_seq_lens_q is None:
            return conv(x, *args, **kwargs)
        lengths = [stop - start for start, stop in pairwise(sequence_ends(cu_seq_lens_q))]
        return torch.cat([conv(part, *args, **kwargs) for part in x.split(lengths, -1)], -1)

    apart.each_sequence = True  # type: ignore[attr-defined]
    return apart
