"""Inputs and references for kernels of nki-library, in NumPy.

Arguments come as a dict, which a kernel and its reference get by name.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
PARTITIONS = 128


def rope_inputs(seed: int) -> dict[str, Any]:
    """Two sequences, four heads of 128, 256 tokens, bfloat16."""
    return _rope(seed, (128, 2, 4, 256), BF16)


def rope_small_inputs(seed: int) -> dict[str, Any]:
    """Three heads of 64, 100 tokens, float32."""
    return _rope(seed, (64, 1, 3, 100), F32)


def rope_sharded_inputs(seed: int) -> dict[str, Any]:
    """As `rope_inputs`, with the tokens shared by the cores."""
    return {**rope_inputs(seed), "lnc_shard": True}


def rope_interleaved_inputs(seed: int) -> dict[str, Any]:
    """Even and odd elements side by side: the layout is converted by strided DMA."""
    return {**_rope(seed, (128, 1, 4, 200), BF16), "contiguous_layout": False}


def rope_relayout_inputs(seed: int) -> dict[str, Any]:
    """Even and odd elements side by side: the layout is converted by a matmul."""
    return {**_rope(seed, (64, 1, 2, 100), F32), "contiguous_layout": False, "relayout_in_sbuf": True}


def rope(x_in: Array, cos: Array, sin: Array, contiguous_layout: bool = True, **_: bool) -> Array:
    """x_in [D, B, heads, S], cos and sin [D / 2, B, S] -> pairs of elements rotated by their angle."""
    half = x_in.shape[0] // 2
    first = slice(0, half) if contiguous_layout else slice(0, None, 2)
    second = slice(half, None) if contiguous_layout else slice(1, None, 2)
    a, b, c, s = x_in[first], x_in[second], cos[:, :, None, :], sin[:, :, None, :]
    out = np.empty_like(x_in)
    out[first] = a * c - b * s
    out[second] = b * c + a * s
    return out


def rope_hf_inputs(seed: int) -> dict[str, Any]:
    """Four query heads and two key heads of 64, 256 tokens, cosines and sines apart."""
    given = _rope_hf(seed, batch=2, q_heads=4, k_heads=2, length=256, size=64)
    cos, sin = given.pop("angles")
    return {**given, "cos": cos, "sin": sin}


def rope_hf_backward_inputs(seed: int) -> dict[str, Any]:
    """One sequence of 640 tokens, heads of 128, cosines and sines in one tensor for all sequences."""
    given = _rope_hf(seed, batch=1, q_heads=2, k_heads=1, length=640, size=128)
    cos, sin = given.pop("angles")
    return {**given, "rope_cache": np.concatenate((cos[0], sin[0]), axis=-1), "backward": True}


def rope_hf(
    q: Array,
    k: Array,
    q_out: Array,
    k_out: Array,
    cos: Array | None = None,
    sin: Array | None = None,
    rope_cache: Array | None = None,
    backward: bool = False,
) -> tuple[Array, Array]:
    """q, k [B, heads, S, D] -> both rotated by halves, or by the transposed rotation."""
    if rope_cache is not None:
        cos, sin = np.split(rope_cache, 2, axis=-1)
    assert cos is not None and sin is not None
    c = cos[:, None] if cos.ndim == 3 else cos[None, None]
    s = sin[:, None] if sin.ndim == 3 else sin[None, None]

    def turned(x: Array) -> Array:
        half = x.shape[-1] // 2
        weighted = x * s if backward else x
        halves = (weighted[..., half:], weighted[..., :half])
        swapped = np.concatenate((halves[0], -halves[1]) if backward else (-halves[0], halves[1]), axis=-1)
        return np.asarray(x * c + (swapped if backward else swapped * s))

    return turned(q), turned(k)


def projection_inputs(seed: int) -> dict[str, Any]:
    """attention [128, 4, 8, 1] bfloat16, weight [1024, 2048], bias."""
    return _projection(seed, (128, 4, 8, 1), 2048, BF16, bias=True)


def projection_tail_inputs(seed: int) -> dict[str, Any]:
    """attention [64, 3, 2, 5] float32, weight [128, 1000] without a bias: no size is a multiple of a tile."""
    return _projection(seed, (64, 3, 2, 5), 1000, F32, bias=False)


def projection_transposed_inputs(seed: int) -> dict[str, Any]:
    """attention [128, 2, 4, 2] bfloat16, weight [512, 1024], the result in the layout of a following kernel."""
    return {**_projection(seed, (128, 2, 4, 2), 1024, BF16, bias=True), "TRANSPOSE_OUT": True}


def projection_tkg(
    attention: Array,
    weight: Array,
    bias: Array | None = None,
    TRANSPOSE_OUT: bool = False,  # noqa: N803
) -> Array:
    """attention [D, B, N, S], weight [N D, H] -> [B S, H], or [128, 1, H / 128, B S], LNC 1."""
    size, batch, heads, length = attention.shape
    flat = attention.transpose(1, 3, 2, 0).reshape(batch * length, heads * size)
    out: Array = flat @ weight + (0 if bias is None else bias)
    if TRANSPOSE_OUT:
        out = out.reshape(batch * length, 1, PARTITIONS, -1).transpose(2, 1, 3, 0)
    return out


def projection_cte_inputs(seed: int) -> dict[str, Any]:
    """attention [1, 4, 128, 512] bfloat16, weight [512, 1024], bias."""
    random = np.random.default_rng(seed)
    return {
        "attention": random.standard_normal((1, 4, 128, 512)).astype(BF16),
        "weight": (random.standard_normal((512, 1024)) / 16).astype(BF16),
        "bias": random.standard_normal((1, 1024)).astype(BF16),
    }


def projection_cte_tail_inputs(seed: int) -> dict[str, Any]:
    """attention [2, 3, 64, 300] float32, weight [192, 700]: short tiles in each dimension."""
    random = np.random.default_rng(seed)
    return {
        "attention": random.standard_normal((2, 3, 64, 300)).astype(F32),
        "weight": (random.standard_normal((192, 700)) / 16).astype(F32),
    }


def projection_cte(attention: Array, weight: Array, bias: Array | None = None) -> Array:
    """attention [B, N, D, S], weight [N D, H] -> [B, S, H]."""
    batch, heads, size, length = attention.shape
    flat = attention.transpose(0, 3, 1, 2).reshape(batch, length, heads * size)
    out: Array = flat @ weight + (0 if bias is None else bias)
    return out


def cumsum_inputs(seed: int) -> dict[str, Any]:
    """x [384, 2048] bfloat16: whole tiles."""
    return {"x": np.random.default_rng(seed).standard_normal((384, 2048)).astype(BF16)}


def cumsum_cube_inputs(seed: int) -> dict[str, Any]:
    """x [3, 50, 777] float32: three dimensions, short tiles."""
    return {"x": np.random.default_rng(seed).standard_normal((3, 50, 777), dtype=np.float32)}


def cumsum(x: Array) -> Array:
    """x [..., columns] -> running sums along the columns."""
    return np.cumsum(x, axis=-1)


def cascaded_max_inputs(seed: int) -> tuple[Array, ...]:
    """[3, 50000] float32: a vocabulary in many stages, no value twice in a row."""
    return _distinct(seed, (3, 50_000))


def cascaded_max_even_inputs(seed: int) -> tuple[Array, ...]:
    """[128, 1024] float32: as many rows as partitions."""
    return _distinct(seed, (128, 1024))


def cascaded_max(x: Array) -> tuple[Array, ...]:
    """x [..., vocabulary] -> the maximum [..., 1] and its index [..., 1]."""
    return x.max(axis=-1, keepdims=True), x.argmax(axis=-1, keepdims=True).astype(np.uint32)


def rmsnorm_inputs(seed: int) -> tuple[Array, ...]:
    """Bfloat16 tokens [4, 1, 4096]: a decoding batch."""
    return _norm(seed, 4, 1, 4096, BF16)


def rmsnorm_tail_inputs(seed: int) -> tuple[Array, ...]:
    """Float32 tokens [1, 131, 1024]: one tile of 128 tokens and one of 3."""
    return _norm(seed, 1, 131, 1024, F32)


def rmsnorm(tokens: Array, gamma: Array, output: Array) -> Array:
    """tokens [B, S, H], gamma [1, H], output [128, B S, H / 128] (its shape only) -> in that layout, LNC 1."""
    flat = tokens.reshape(-1, tokens.shape[-1])
    scale = 1.0 / np.sqrt(np.mean(flat * flat, axis=1, keepdims=True) + 1e-6)
    return _hidden_first(flat * scale * gamma)


def layernorm(tokens: Array, gamma: Array, output: Array) -> Array:
    """As `rmsnorm`, with the mean taken off first."""
    flat = tokens.reshape(-1, tokens.shape[-1])
    flat = flat - flat.mean(axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(flat * flat, axis=1, keepdims=True) + 1e-6)
    return _hidden_first(flat * scale * gamma)


def conv1d_inputs(seed: int) -> dict[str, Any]:
    """x [2, 64, 200] bfloat16, 5 taps, 96 channels out, a bias, padded by 2 on both sides."""
    random = np.random.default_rng(seed)
    return {
        "x_in": random.standard_normal((2, 64, 200)).astype(BF16),
        "filters": (random.standard_normal((5, 64, 96)) / 18).astype(BF16),
        "bias": random.standard_normal(96).astype(BF16),
        "padding": (2, 2),
    }


def conv1d_tail_inputs(seed: int) -> dict[str, Any]:
    """x [1, 150, 333] float32, 3 taps two apart, every second output, 70 channels out, padded on the left."""
    random = np.random.default_rng(seed)
    return {
        "x_in": random.standard_normal((1, 150, 333)).astype(F32),
        "filters": (random.standard_normal((3, 150, 70)) / 21).astype(F32),
        "stride": 2,
        "padding": (3, 0),
        "dilation": 2,
    }


def conv1d(
    x_in: Array,
    filters: Array,
    bias: Array | None = None,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
) -> Array:
    """x_in [B, Cin, L], filters [K, Cin, Cout] -> [B, Cout, Lout]."""
    taps = filters.shape[0]
    padded = np.pad(x_in, ((0, 0), (0, 0), tuple(padding)))
    length = (padded.shape[2] - dilation * (taps - 1) - 1) // stride + 1
    out = sum(
        np.einsum("bcl,cd->bdl", padded[:, :, k * dilation :][:, :, : length * stride : stride], filters[k])
        for k in range(taps)
    )
    return np.asarray(out + (0 if bias is None else bias[None, :, None]))


def depthwise_inputs(seed: int) -> dict[str, Any]:
    """img [2, 16, 1, 300] float32, 7 taps."""
    return _depthwise(seed, batch=2, channels=16, width=300, taps=7, stride=1)


def depthwise_strided_inputs(seed: int) -> dict[str, Any]:
    """img [1, 6, 1, 1200] bfloat16, 130 taps: more than partitions, every third output."""
    given = _depthwise(seed, batch=1, channels=6, width=1200, taps=130, stride=3)
    return {
        key: value.astype(BF16) if isinstance(value, np.ndarray) else value for key, value in given.items()
    }


def depthwise(img_ref: Array, filter_ref: Array, stride: tuple[int, int], feature_group_count: int) -> Array:
    """img [N, C, 1, W], filter [C, 1, 1, S] -> each channel with its own filter, [N, C, 1, Q]."""
    taps, step = filter_ref.shape[3], stride[1]
    width = (img_ref.shape[3] - taps) // step + 1
    out = np.zeros((*img_ref.shape[:3], width), img_ref.dtype)
    for tap in range(taps):
        out += img_ref[..., tap : tap + (width - 1) * step + 1 : step] * filter_ref[None, :, :, 0, tap, None]
    return out


def cross_entropy_inputs(seed: int) -> dict[str, Any]:
    """logits [64, 8192] float32, 32 positions at a time, chunks of 4096."""
    return _cross_entropy(seed, 64, 8192, 32, 4096)


def cross_entropy_tail_inputs(seed: int) -> dict[str, Any]:
    """logits [19, 5000] float32, 8 positions at a time, chunks of 2048: the last of both are short."""
    return _cross_entropy(seed, 19, 5000, 8, 2048)


def cross_entropy(
    logits_hbm: Array, targets_hbm: Array, positions_per_batch: int, chunk_size: int, dtype: str
) -> tuple[Array, Array]:
    """logits [positions, vocabulary], targets [positions] -> the loss and the logarithm of the sum, [positions]."""
    top = logits_hbm.max(axis=1, keepdims=True)
    lse = top[:, 0] + np.log(np.exp(logits_hbm - top).sum(axis=1))
    return lse - logits_hbm[np.arange(len(targets_hbm)), targets_hbm.astype(np.int64)], lse


def nonzero_inputs(seed: int) -> dict[str, Any]:
    """input_tensor [512, 32] int32, a quarter of it set, in chunks of 256."""
    return {"input_tensor": _sparse(seed, (512, 32), np.int32), "chunk_size": 256}


def nonzero_columns_inputs(seed: int) -> dict[str, Any]:
    """input_tensor [512, 32] float32, of which columns 10 to 25 are asked for, in one piece."""
    given = {"input_tensor": _sparse(seed, (512, 32), F32), "col_start_id": np.array([10], np.int32)}
    return {**given, "n_cols": 16, "chunk_size": 512}


def nonzero(
    input_tensor: Array, chunk_size: int, col_start_id: Array | None = None, n_cols: int | None = None
) -> tuple[Array, Array]:
    """input_tensor [T, columns] -> rows of each column that are not 0, then -1, [columns, T], and how many."""
    start = 0 if col_start_id is None else int(col_start_id[0])
    columns = input_tensor.T[start:][:n_cols]
    indices = np.full(columns.shape, -1, np.int32)
    for column, found in zip(columns, indices, strict=True):
        rows = np.flatnonzero(column)
        found[: len(rows)] = rows
    return indices, np.count_nonzero(columns, axis=1).astype(np.int32)


def flatten_inputs(seed: int) -> dict[str, Any]:
    """Three rows of 4096, in blocks of 128, to offsets of which the last runs over the end."""
    return {**_flatten(seed, 3), "row_offsets": np.array([40, 0, 80], np.int32)}


def flatten_start_inputs(seed: int) -> dict[str, Any]:
    """Two rows of 4096, in blocks of 128, with their offsets from the third on."""
    offsets = {
        "row_offsets": np.array([0, 32, 64, 20], np.int32),
        "row_offsets_start": np.array([2], np.int32),
    }
    return {**_flatten(seed, 2), **offsets}


def flatten(
    input_tensor: Array,
    f_len: int,
    output_len: int,
    row_offsets: Array,
    row_offsets_start: Array | None = None,
    padding_val: int = -1,
) -> Array:
    """input_tensor [rows, T] -> its rows at their offsets, counted in blocks of f_len, cut at output_len."""
    out = np.full(output_len, padding_val, input_tensor.dtype)
    start = 0 if row_offsets_start is None else int(row_offsets_start[0])
    for row, offset in zip(input_tensor, row_offsets[start:], strict=False):
        place = out[int(offset) * f_len :][: len(row)]
        place[:] = row[: len(place)]
    return out


def dynamic_add_inputs(seed: int) -> dict[str, Any]:
    """input_a and input_b [512, 1024] bfloat16, all of whose four tiles of rows are asked for."""
    random = np.random.default_rng(seed)
    pair = {name: random.standard_normal((512, 1024)).astype(BF16) for name in ("input_a", "input_b")}
    return {**pair, "num_m_tiles": np.array([[4]], np.int32)}


def dynamic_add(input_a: Array, input_b: Array, num_m_tiles: Array) -> Array:
    """Two tensors of one shape -> their sum."""
    return input_a + input_b


def attention_bwd_inputs(seed: int) -> dict[str, Any]:
    """Four query heads and two key heads of 64, 256 positions, bfloat16, causal."""
    return _attention_bwd(seed, q_heads=4, k_heads=2, size=64, length=256, dtype=BF16, causal=True)


def attention_bwd_full_inputs(seed: int) -> dict[str, Any]:
    """One head of 128, 512 positions, float32, every position sees every other."""
    return _attention_bwd(seed, q_heads=1, k_heads=1, size=128, length=512, dtype=F32, causal=False)


def attention_bwd(
    q_ref: Array,
    k_ref: Array,
    v_ref: Array,
    o_ref: Array,
    dy_ref: Array,
    lse_ref: Array,
    use_causal_mask: bool,
    mixed_precision: bool,
) -> tuple[Array, Array, Array]:
    """q, o, dy [B, Hq, D, S], k, v [B, Hk, D, S], lse [B, Hq, 128, S / 128] -> gradients of q, k and v."""
    batch, heads, size, length = q_ref.shape
    group = heads // k_ref.shape[1]
    k, v = (np.repeat(item, group, axis=1) for item in (k_ref, v_ref))
    lse = lse_ref.transpose(0, 1, 3, 2).reshape(batch, heads, length, 1)
    weights = np.exp(np.swapaxes(q_ref, 2, 3) @ k / np.sqrt(size) - lse)
    if use_causal_mask:
        weights = weights * np.tril(np.ones((length, length), weights.dtype))
    inner = (dy_ref * o_ref).sum(axis=2)[..., None]
    slope = weights * (np.swapaxes(dy_ref, 2, 3) @ v - inner) / np.sqrt(size)
    grouped = (batch, k_ref.shape[1], group, size, length)
    dk = (q_ref @ slope).reshape(grouped).sum(axis=2)
    dv = (dy_ref @ weights).reshape(grouped).sum(axis=2)
    return k @ np.swapaxes(slope, 2, 3), dk, dv


def mlp_tkg_inputs(seed: int) -> dict[str, Any]:
    """Four tokens of 1024, 512 inside, bfloat16: the path for token generation."""
    return _mlp(seed, tokens=4, hidden=1024, inner=512)


def mlp_cte_inputs(seed: int) -> dict[str, Any]:
    """256 tokens of 1024, 512 inside, bfloat16: the path for context encoding."""
    return _mlp(seed, tokens=256, hidden=1024, inner=512)


def mlp(
    hidden_tensor: Array,
    gate_proj_weights_tensor: Array,
    up_proj_weights_tensor: Array,
    down_proj_weights_tensor: Array,
) -> Array:
    """hidden [B, S, H], gate and up [H, I], down [I, H] -> down(silu(gate) * up), [B, S, H]."""
    gate = hidden_tensor @ gate_proj_weights_tensor
    up = hidden_tensor @ up_proj_weights_tensor
    out: Array = (gate / (1.0 + np.exp(-gate)) * up) @ down_proj_weights_tensor
    return out


def qkv_tkg_inputs(seed: int) -> dict[str, Any]:
    """Four tokens of 1024, weights [1024, 768], bfloat16: the path for token generation."""
    return _qkv(seed, tokens=4, hidden=1024, width=768)


def qkv_cte_inputs(seed: int) -> dict[str, Any]:
    """256 tokens of 1024, weights [1024, 768], bfloat16: the path for context encoding, without DMA transposes."""
    return {**_qkv(seed, tokens=256, hidden=1024, width=768), "load_input_with_DMA_transpose": False}


def qkv(input: Array, fused_qkv_weights: Array, **_: Any) -> Array:
    """input [B, S, H], weights [H, I] -> [B, S, I]."""
    out: Array = input @ fused_qkv_weights
    return out


def _sparse(seed: int, shape: tuple[int, int], dtype: Any) -> Array:
    """A quarter of each column is 1, the rest 0."""
    column = (np.arange(shape[0]) < shape[0] // 4).astype(dtype)
    return np.random.default_rng(seed).permuted(np.tile(column[:, None], (1, shape[1])), axis=0)


def _flatten(seed: int, rows: int) -> dict[str, Any]:
    tensor = np.random.default_rng(seed).integers(0, 1 << 24, (rows, 4096)).astype(np.int32)
    return {"input_tensor": tensor, "f_len": 128, "output_len": 12288, "padding_val": -1}


def _mlp(seed: int, tokens: int, hidden: int, inner: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "hidden_tensor": random.standard_normal((1, tokens, hidden)).astype(BF16),
        "gate_proj_weights_tensor": (random.standard_normal((hidden, inner)) / np.sqrt(hidden)).astype(BF16),
        "up_proj_weights_tensor": (random.standard_normal((hidden, inner)) / np.sqrt(hidden)).astype(BF16),
        "down_proj_weights_tensor": (random.standard_normal((inner, hidden)) / np.sqrt(inner)).astype(BF16),
    }


def _qkv(seed: int, tokens: int, hidden: int, width: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "input": random.standard_normal((1, tokens, hidden)).astype(BF16),
        "fused_qkv_weights": (random.standard_normal((hidden, width)) / np.sqrt(hidden)).astype(BF16),
    }


def _cross_entropy(seed: int, positions: int, vocabulary: int, batch: int, chunk: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "logits_hbm": random.standard_normal((positions, vocabulary)).astype(F32),
        "targets_hbm": random.integers(0, vocabulary, positions).astype(np.int32),
        "positions_per_batch": batch,
        "chunk_size": chunk,
        "dtype": "float32",
    }


def _projection(
    seed: int, shape: tuple[int, int, int, int], hidden: int, dtype: np.dtype[Any], bias: bool
) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rows = shape[0] * shape[2]
    given = {
        "attention": random.standard_normal(shape).astype(dtype),
        "weight": (random.standard_normal((rows, hidden)) / np.sqrt(rows)).astype(dtype),
    }
    return {**given, "bias": random.standard_normal((1, hidden)).astype(dtype)} if bias else given


def _attention_bwd(
    seed: int, q_heads: int, k_heads: int, size: int, length: int, dtype: np.dtype[Any], causal: bool
) -> dict[str, Any]:
    """What the forward pass leaves, computed in float64: lse[p, t] is that of position 128 t + p."""
    random = np.random.default_rng(seed)
    q, dy = (random.standard_normal((1, q_heads, size, length)).astype(dtype) for _ in range(2))
    k, v = (random.standard_normal((1, k_heads, size, length)).astype(dtype) for _ in range(2))
    wide_k, wide_v = (np.repeat(item.astype(np.float64), q_heads // k_heads, axis=1) for item in (k, v))
    scores = np.swapaxes(q.astype(np.float64), 2, 3) @ wide_k / np.sqrt(size)
    if causal:
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    lse = np.log(np.exp(scores).sum(axis=-1))
    o = wide_v @ np.swapaxes(np.exp(scores - lse[..., None]), 2, 3)
    return {
        "q_ref": q,
        "k_ref": k,
        "v_ref": v,
        "o_ref": o.astype(dtype),
        "dy_ref": dy,
        "lse_ref": lse.reshape(1, q_heads, -1, PARTITIONS).transpose(0, 1, 3, 2).astype(F32),
        "use_causal_mask": causal,
        "mixed_precision": True,
    }


def _depthwise(seed: int, batch: int, channels: int, width: int, taps: int, stride: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "img_ref": random.standard_normal((batch, channels, 1, width)).astype(F32),
        "filter_ref": (random.standard_normal((channels, 1, 1, taps)) / np.sqrt(taps)).astype(F32),
        "stride": (1, stride),
        "feature_group_count": channels,
    }


def _rope(seed: int, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    angle = random.uniform(-3.0, 3.0, (shape[0] // 2, shape[1], shape[3]))
    return {
        "x_in": random.standard_normal(shape).astype(dtype),
        "cos": np.cos(angle).astype(dtype),
        "sin": np.sin(angle).astype(dtype),
    }


def _rope_hf(seed: int, batch: int, q_heads: int, k_heads: int, length: int, size: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    angle = random.uniform(-3.0, 3.0, (batch, length, size))
    q = random.standard_normal((batch, q_heads, length, size)).astype(BF16)
    k = random.standard_normal((batch, k_heads, length, size)).astype(BF16)
    angles = (np.cos(angle).astype(BF16), np.sin(angle).astype(BF16))
    return {"q": q, "k": k, "q_out": np.zeros_like(q), "k_out": np.zeros_like(k), "angles": angles}


def _norm(seed: int, batch: int, length: int, hidden: int, dtype: np.dtype[Any]) -> tuple[Array, ...]:
    random = np.random.default_rng(seed)
    tokens = random.standard_normal((batch, length, hidden)).astype(dtype)
    gamma = (1.0 + 0.1 * random.standard_normal((1, hidden))).astype(dtype)
    return tokens, gamma, np.zeros((PARTITIONS, batch * length, hidden // PARTITIONS), dtype)


def _hidden_first(flat: Array) -> Array:
    """[tokens, H] -> [128, tokens, H / 128]: a partition holds H / 128 neighbours of each token."""
    out: Array = flat.reshape(len(flat), PARTITIONS, -1).transpose(1, 0, 2)
    return out


def _distinct(seed: int, shape: tuple[int, int]) -> tuple[Array, ...]:
    """No value twice in a row: the index of a maximum that occurs twice is not defined."""
    row = np.linspace(-4.0, 4.0, shape[1], dtype=np.float32)
    return (np.random.default_rng(seed).permuted(np.broadcast_to(row, shape), axis=-1),)
