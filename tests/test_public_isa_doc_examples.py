"""One small kernel for each row of copy.py, gpsimd.py, gather.py and random.py, traced, verified and executed.

The kernels are ours; what they should give is what the public documentation of nki.isa says.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nl_kernels import nisa, nl, record, run
from numpy.typing import NDArray

from nkireview.execute import execute
from nkireview.program.verify import verify

Array = NDArray[Any]
EVERYWHERE = ("trn1", "trn2", "trn3")
SINCE_TRN2 = ("trn2", "trn3")
BF16 = ml_dtypes.bfloat16


def loaded(tensor: Any) -> Any:
    """An SBUF copy of an argument."""
    tile = nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor)
    return tile


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.oracle("nisa.local_gather")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_local_gather(target: str) -> None:
    def kernel(src: Any, index: Any) -> Any:
        out = nl.ndarray((32, 6, 4), dtype=src.dtype, buffer=nl.sbuf)
        nisa.local_gather(
            dst=out, src_buffer=loaded(src), index=loaded(index), num_elem_per_idx=4, num_valid_indices=6
        )
        return out

    src = numbers(32, 16, 4)
    places = np.random.default_rng(1).integers(0, 16, (32, 1)).astype(np.uint16)
    expected = np.concatenate(
        [np.take(src[start : start + 16], places[start : start + 6, 0], axis=1) for start in (0, 16)]
    )
    assert np.array_equal(run(kernel, src, places * 4, target=target), expected)


@pytest.mark.oracle("nisa.nc_n_gather")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_nc_n_gather(target: str) -> None:
    def kernel(data: Any, indices: Any) -> Any:
        out = nl.ndarray((16, 3, 2), dtype=data.dtype, buffer=nl.sbuf)
        nisa.nc_n_gather(dst=out, data=loaded(data), indices=loaded(indices))
        return out

    data = numbers(16, 4, 5).astype(BF16)
    indices = np.random.default_rng(2).integers(0, 20, (16, 3, 2)).astype(np.uint32)
    expected = np.take_along_axis(data.reshape(16, 20), indices.reshape(16, 6).astype(np.int64), axis=1)
    assert np.array_equal(run(kernel, data, indices, target=target), expected.reshape(16, 3, 2))


@pytest.mark.oracle("nisa.tensor_partition_reduce")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_tensor_partition_reduce(target: str) -> None:
    def kernel(data: Any) -> Any:
        out = nl.ndarray((1, 5), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_partition_reduce(out, nl.add, loaded(data))
        return out

    data = numbers(128, 5)
    assert np.allclose(run(kernel, data, target=target), data.astype(np.float64).sum(axis=0), atol=1e-4)


@pytest.mark.oracle("nisa.sequence_bounds")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_sequence_bounds(target: str) -> None:
    def kernel(ids: Any) -> Any:
        out = nl.ndarray((1, 2, 9), dtype=nl.int32, buffer=nl.sbuf)
        nisa.sequence_bounds(dst=out, segment_ids=loaded(ids))
        return out

    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], np.int32)
    expected = [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]]
    assert run(kernel, ids, target=target).tolist() == expected


@pytest.mark.oracle("nisa.nonzero_with_count")
@pytest.mark.parametrize("target", SINCE_TRN2)
def test_nonzero_with_count(target: str) -> None:
    def kernel(src: Any) -> Any:
        tile = nl.ndarray((32, 9), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7)
        nisa.nonzero_with_count(dst=tile, src=loaded(src), index_offset=16, padding_val=-1)
        return tile

    src = np.tile(np.array([0, 1, 1, 0, 0, 1, 0, 0], np.int32), (32, 1))
    found = run(kernel, src, target=target)
    assert found[0].tolist() == found[16].tolist() == [17, 18, 21, -1, -1, -1, -1, -1, 3]
    assert np.all(np.delete(found, (0, 16), axis=0) == 7)


@pytest.mark.oracle("nisa.topk")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_topk(target: str) -> None:
    def kernel(src: Any) -> Any:
        values = nl.ndarray((32, 16), dtype=nl.bfloat16, buffer=nl.sbuf)
        places = nl.ndarray((32, 16), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.topk(val_dst=values, idx_dst=places, src=loaded(src), n=42)
        return places[:, 0:1]

    src = numbers(32, 3).astype(BF16)
    found = run(kernel, src, target=target)
    for group in (0, 16):
        snake = src[group : group + 16].T.reshape(-1)[:42].astype(np.float32)
        ranked = found[group : group + 16, 0].astype(np.int64)
        assert np.array_equal(np.sort(snake)[-16:], snake[ranked])


@pytest.mark.oracle("nisa.rng")
@pytest.mark.parametrize(
    ("target", "engine"),
    [("trn1", "vector"), ("trn2", "vector"), ("trn2", "gpsimd"), ("trn3", "vector"), ("trn3", "gpsimd")],
)
def test_rng(target: str, engine: str) -> None:
    def kernel(like: Any) -> Any:
        bits = nl.ndarray(like.shape, dtype=nl.uint16, buffer=nl.sbuf)
        nisa.rng(dst=bits, engine=getattr(nisa.engine, engine))
        result = nl.ndarray(like.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=bits, op0=nl.multiply, operand0=1.0 / 65535)
        return result

    found = run(kernel, np.zeros((128, 256), np.float32), target=target)
    assert found.min() >= 0 and found.max() <= 1 and abs(found.mean() - 0.5) < 0.01


@pytest.mark.oracle("nisa.rand2")
def test_rand2() -> None:
    def kernel(low: Any) -> Any:
        out = nl.ndarray((64, 300), dtype=nl.float32, buffer=nl.sbuf)
        nisa.rand2(dst=out, min=loaded(low), max=10.0)
        return out

    low = np.linspace(0, 9, 64, dtype=np.float32)[:, None]
    found = run(kernel, low, target="trn3")
    assert np.all(found >= low) and np.all(found <= 10)
    assert np.allclose(found.mean(axis=1), (low[:, 0] + 10) / 2, atol=0.8)


@pytest.mark.oracle("nisa.dropout", "nisa.set_rng_seed")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_dropout_repeats_from_its_seed(target: str) -> None:
    def kernel(data: Any, seed: Any) -> Any:
        tile, word = loaded(data), loaded(seed)
        both = nl.ndarray((2, *data.shape), dtype=data.dtype, buffer=nl.shared_hbm)
        for again in range(2):
            out = nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.sbuf)
            nisa.set_rng_seed(src_seeds=word)
            nisa.dropout(dst=out, data=tile, prob=0.2)
            nisa.dma_copy(dst=both[again], src=out)
        return both

    data = numbers(128, 64) + 10
    found = run(kernel, data, np.array([[42]], np.uint32), target=target)
    assert np.array_equal(found[0], found[1])
    assert np.all((found[0] == 0) | (found[0] == data)) and 0.15 < (found[0] == 0).mean() < 0.25


@pytest.mark.oracle("nisa.rand_get_state", "nisa.rand_set_state")
@pytest.mark.parametrize("target", SINCE_TRN2)
def test_states_are_kept_and_set(target: str) -> None:
    def kernel(like: Any) -> Any:
        state = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rand_get_state(dst=state)
        both = nl.ndarray((2, *like.shape), dtype=nl.int32, buffer=nl.shared_hbm)
        for again in range(2):
            out = nl.ndarray(like.shape, dtype=nl.int32, buffer=nl.sbuf)
            nisa.rand_set_state(src_seeds=state)
            nisa.rng(dst=out, engine=nisa.engine.gpsimd)
            nisa.dma_copy(dst=both[again], src=out)
        return both

    found = run(kernel, np.zeros((128, 20), np.float32), target=target)
    assert np.array_equal(found[0], found[1]) and len(np.unique(found)) > 2000


@pytest.mark.parametrize("target", SINCE_TRN2)
def test_lanes_seeded_apart_draw_apart(target: str) -> None:
    def kernel(base: Any) -> Any:
        lanes = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.iota(dst=lanes, pattern=[[0, 6]], offset=0, channel_multiplier=1)
        seeds = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=seeds, data1=loaded(base), data2=lanes, op=nl.add)
        nisa.rand_set_state(src_seeds=seeds, engine=nisa.engine.gpsimd)
        out = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rng(dst=out, engine=nisa.engine.gpsimd)
        return out

    base = np.tile(np.array([[3, 5, 7, 11, 13, 17]], np.uint32), (128, 1))
    found = run(kernel, base, target=target)
    assert len({lane.tobytes() for lane in found}) == 128


@pytest.mark.oracle("nisa.iota", "nisa.affine_select")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_iota_and_affine_select_make_a_causal_mask(target: str) -> None:
    def kernel(scores: Any) -> Any:
        out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.sbuf)
        nisa.affine_select(
            dst=out,
            pattern=[[-1, 64]],
            channel_multiplier=1,
            on_true_tile=loaded(scores),
            on_false_value=-9999.0,
            cmp_op=nl.greater_equal,
        )
        columns = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=columns, pattern=[[1, 64]], offset=5, channel_multiplier=100)
        total = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=out, data2=columns, op=nl.add)
        return total

    scores = np.round(numbers(64, 64) * 8)
    rows, columns = np.mgrid[0:64, 0:64]
    expected = np.where(rows >= columns, scores, -9999.0) + 5 + 100 * rows + columns
    assert np.array_equal(run(kernel, scores, target=target), expected)


@pytest.mark.oracle("nisa.memset", "nisa.tensor_copy")
@pytest.mark.parametrize("target", EVERYWHERE)
def test_memset_and_tensor_copy(target: str) -> None:
    def kernel(data: Any) -> Any:
        out = nl.ndarray((64, 12), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.memset(dst=out, value=0.1, engine=nisa.engine.gpsimd)
        nisa.tensor_copy(dst=out[:, 0:4], src=loaded(data), engine=nisa.engine.gpsimd)
        nisa.tensor_copy(dst=out[:, 4:8], src=loaded(data))
        return out

    data = numbers(64, 4)
    expected = np.full((64, 12), 0.1, np.float32)
    expected[:, :4] = expected[:, 4:8] = data
    assert np.array_equal(run(kernel, data, target=target), expected.astype(BF16))


@pytest.mark.parametrize(
    ("name", "target"),
    [("nonzero_with_count", "trn1"), ("rand_get_state", "trn1"), ("rand2", "trn1"), ("rand2", "trn2")],
)
def test_what_a_target_lacks_is_refused(name: str, target: str) -> None:
    def kernel(data: Any) -> Any:
        tile = loaded(data)
        out = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
        if name == "nonzero_with_count":
            out = nl.ndarray((128, 9), dtype=nl.int32, buffer=nl.sbuf)
            nisa.nonzero_with_count(dst=out, src=tile)
        elif name == "rand2":
            nisa.rand2(dst=tile, min=0.0, max=1.0)
        else:
            nisa.rand_get_state(dst=out)
        return out

    messages = [found.message for found in verify(record(kernel, [numbers(128, 8)], target=target))]
    needs = {"rand2": "needs NeuronCore-v4, not v"}.get(name, "needs NeuronCore-v3 or v4, not v2")
    assert any(message.startswith(f"{name}: {needs}") for message in messages)


def test_the_run_without_data_repeats() -> None:
    def kernel(like: Any) -> Any:
        out = nl.ndarray(like.shape, dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rng(dst=out)
        return out

    like = np.zeros((128, 4), np.float32)
    program = record(kernel, [like])
    drawn = [execute(program, {0: like}, seed=seed).outputs[0].values for seed in (0, 0, 9)]
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
