"""Scales taken along the wrong axis: what kernel and reference give differs as the figures of two groupings do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from nkireview.diagnosis.flows.acting import Array, Float64
from nkireview.diagnosis.flows.explaining import Case, Explanation, close
from nkireview.isa import dtypes

CAUSE = "scale-axis"
SAMPLE = 4096
"""Elements that are looked at before all are."""
TELLING = 0.02
"""Share of the elements that the two groupings must tell apart."""
LEVELS = (127.0, 128.0, 255.0, 7.0, 8.0, 15.0, 448.0, 240.0)
"""What the largest value of a group is taken to in a quantised type."""
TILE = 128
STATISTICS: Mapping[str, Callable[[Float64], Float64]] = {
    "largest magnitude": np.abs,
    "sum of magnitudes": np.abs,
    "root mean square": np.square,
    "sum of exponentials": np.exp,
    "sum": lambda x: x,
}
GROUPS = ("row", "column", "tensor", f"tile of {TILE} rows", f"column of each tile of {TILE} rows")


def wrong_axis(case: Case) -> Iterator[Explanation]:
    """One sentence for the first output and input whose figures explain the difference."""
    for at, mine in enumerate(case.base):
        wanted = case.wanted[at]
        if mine.shape != wanted.shape or mine.ndim < 1 or close(mine, wanted):
            continue
        whole = _whole(case, at)
        for number, held in enumerate(case.inputs):
            if dtypes.of(held.dtype).kind != "float":
                continue
            found = None
            if held.shape == mine.shape and held.ndim > 1:
                found = _by_groups(_flat(held), _flat(mine), _flat(wanted), whole)
            elif mine.ndim > 1:
                found = _by_vector(held.astype(np.float64), mine, wanted, whole)
            if found:
                name, path = case.output(at), case.paths[number]
                yield Explanation(CAUSE, f"{found.format(output=f'output {name}', path=path)}")
                return


def _whole(case: Case, at: int) -> bool:
    """True where an output holds integers."""
    program = case.program
    return dtypes.BY_NAME[program.access(program.outputs[at].access).dtype].kind in ("int", "uint")


def _flat(array: Array) -> Float64:
    """As rows of the last axis."""
    return array.astype(np.float64).reshape(-1, array.shape[-1])


def _by_groups(held: Float64, mine: Float64, wanted: Float64, whole: bool) -> str:
    with np.errstate(all="ignore"):
        for what, of in STATISTICS.items():
            groups = GROUPS if held.shape[0] > TILE else GROUPS[:3]
            terms = of(held)
            figures = {group: _figure(terms, what, group) for group in groups}
            for ours in groups:
                for theirs in groups:
                    if ours == theirs:
                        continue
                    # what divides is the usual: the other way round, the same equation names the groups the other way
                    if _predicts(mine, wanted, figures[ours], figures[theirs], whole):
                        return (
                            f"{{output}} is scaled by the {what} of each {ours} of {{path}}, where the reference takes "
                            f"that of each {theirs}"
                        )
                    if what == "largest magnitude" and _on_grids(
                        mine, wanted, figures[ours], figures[theirs]
                    ):
                        return (
                            f"{{output}} lies on steps of the largest magnitude of each {ours} of {{path}}, where the "
                            f"reference takes that of each {theirs}"
                        )
    return ""


def _by_vector(vector: Float64, mine: Array, wanted: Array, whole: bool) -> str:
    """A vector of factors that is taken for the rows of a square output instead of the columns, or the reverse."""
    rows, columns = mine.shape[-2:]
    if rows != columns or vector.size != rows:
        return ""
    flat, right = _flat(mine), _flat(wanted)
    down, across = np.tile(vector.reshape(-1), flat.shape[0] // rows)[:, None], vector.reshape(1, rows)
    with np.errstate(all="ignore"):
        for ours, theirs in ((down, across), (across, down)):
            if _predicts(flat, right, ours, theirs, whole):
                return (
                    "{output} is scaled by the numbers of {path} along one of its last two axes, where the reference "
                    "takes them along the other"
                )
    return ""


def _figure(values: Float64, what: str, group: str) -> Float64:
    """One figure for each group, of a shape that broadcasts against the values."""
    join: Callable[..., Float64] = np.max if what == "largest magnitude" else np.sum
    if what == "root mean square":
        join = _root_mean
    if group == "row":
        return np.asarray(join(values, axis=1, keepdims=True))
    if group == "column":
        return np.asarray(join(values, axis=0, keepdims=True))
    if group == "tensor":
        return np.asarray(join(values, axis=(0, 1), keepdims=True))
    axis = (0, 1) if group.startswith("tile") else 0
    parts = []
    for first in range(0, values.shape[0], TILE):
        tile = values[first : first + TILE]
        found = np.asarray(join(tile, axis=axis, keepdims=True))
        parts.append(np.repeat(found, tile.shape[0], axis=0))
    return np.concatenate(parts)


def _root_mean(values: Float64, axis: int | tuple[int, ...], keepdims: bool) -> Float64:
    return np.asarray(np.sqrt(np.mean(values, axis=axis, keepdims=keepdims)))


def _predicts(mine: Float64, wanted: Float64, ours: Float64, theirs: Float64, whole: bool) -> bool:
    """True where `wanted` with `ours` for `theirs` under the fraction bar is what the kernel gives.

    To a step of each where they are rounded to integers. False where that hardly differs from `wanted` itself.
    """
    few = [_sampled(each, mine.shape) for each in (mine, wanted, ours, theirs)]
    if not _explained(few[0], few[1], few[3] / few[2], whole):
        return False
    return _explained(mine, wanted, np.broadcast_to(theirs / ours, mine.shape), whole)


def _sampled(values: Float64, shape: tuple[int, ...]) -> Float64:
    """Some elements of an array that broadcasts to a shape of two axes."""
    size = shape[0] * shape[1]
    # an odd step, so that not the same few columns come again and again
    rows, columns = np.divmod(np.arange(0, size, size // SAMPLE | 1), shape[1])
    found: Float64 = values[rows if values.shape[0] > 1 else 0, columns if values.shape[1] > 1 else 0]
    return np.broadcast_to(found, rows.shape)


def _explained(mine: Float64, wanted: Float64, ratio: Float64, whole: bool) -> bool:
    allowed = 0.5 + 0.5 * np.abs(ratio) + 1e-6 if whole else np.zeros_like(ratio)
    slack = 1e-5 * (np.abs(mine) + np.sqrt(np.mean(np.square(mine))))
    fits = np.abs(mine - wanted * ratio) <= allowed + slack
    differs = np.abs(mine - wanted) > allowed + slack
    return bool(fits.all()) and float(np.mean(differs)) >= TELLING


def _on_grids(mine: Float64, wanted: Float64, ours: Float64, theirs: Float64) -> bool:
    """True where each lies on the steps of its own grouping, and not of the other one."""
    for levels in LEVELS:
        if _on_grid(mine, ours, levels) and _on_grid(wanted, theirs, levels):
            return not _on_grid(mine, theirs, levels) and not _on_grid(wanted, ours, levels)
    return False


def _on_grid(values: Float64, figure: Float64, levels: float) -> bool:
    return _whole_steps(
        _sampled(values, values.shape), _sampled(figure, values.shape), levels
    ) and _whole_steps(values, figure, levels)


def _whole_steps(values: Float64, figure: Float64, levels: float) -> bool:
    steps = values / figure * levels
    nearest = np.rint(steps)
    return bool(np.all(np.abs(steps - nearest) <= 1e-3)) and bool(np.any(nearest != 0))
