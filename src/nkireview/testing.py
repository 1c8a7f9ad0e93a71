"""For people's own test suites: a kernel matches its reference where rounding explains the difference."""

from __future__ import annotations

import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview import arguments as carried
from nkireview import hardware
from nkireview.checks.source import SourceError, choose_kernel, read_source
from nkireview.diagnosis import Diagnosis, diagnose
from nkireview.diagnosis.model import OutputDiagnosis
from nkireview.hosted.arguments import Arguments
from nkireview.hosted.arrays import HostArray, result
from nkireview.hosted.launch import names_of, recorded
from nkireview.hosted.settings import Settings
from nkireview.isa import dtypes
from nkireview.isa.release import Release
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.jit import Kernel
from nkireview.nki.legacy.kernels import is_legacy
from nkireview.numbers import chosen
from nkireview.numerics.hostile import HOSTILE
from nkireview.numerics.hostile import hostile as made_hostile
from nkireview.numerics.inputs import Spec, draw_all, parse_input
from nkireview.observed import Observation, observe
from nkireview.program.program import Program
from nkireview.program.verify import verify
from nkireview.programs import NotJudged, program_of, subject_of
from nkireview.record import Setting
from nkireview.runner import ForkServer, Limits
from nkireview.tracing import Request, Workload, settle_grid, settle_lnc

__all__ = ["assert_matches"]

Array = NDArray[Any]
Float64 = NDArray[np.float64]
AS_GIVEN = "as given"
ROOTS = frozenset({"nki", "neuronxcc"})
OWN_DTYPES = "the reference computed in the dtypes of its inputs, as it failed in float64"
_SPECIFIED = re.compile(r"\w+\[")


def assert_matches(
    kernel_or_program: Any,
    reference: Any,
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    target: str = "trn2",
    nki: str = "0.6",
    lnc: int = 1,
    grid: Any = None,
    tolerance: tuple[float, float] | None = None,
    seed: int = 0,
    hostile: Sequence[str] = (),
    seconds: float | None = None,
) -> Diagnosis:
    """Pass where rounding explains every difference of a kernel from its reference, and return the diagnosis.

    kernel_or_program: a kernel imported in this process; ``"file.py:kernel"``, which is traced in a child process; or a
    Program. inputs: its arguments, a list or a dict by name, of NumPy, torch or jax arrays and of scalars; a text such
    as ``"bf16[128, 512]"`` is drawn from `seed`. reference: a function of the same arguments, called with floats in
    float64 where it takes them; or the expected array, or a list of them, one for each output. lnc, grid: as the kernel
    is launched; a grid of instances belongs to kernels of neuronxcc.nki. tolerance: (rtol, atol), by which elements are
    then judged instead, ``|e| <= atol + rtol * |reference|``; the diagnosis still says what rounding explains. hostile:
    kinds of `nkireview.numerics.hostile.HOSTILE` that are tried besides. seconds: for each diagnosis.

    Raise AssertionError with what is wrong, where and why: for a defect, and for a kernel that cannot be traced or
    has no meaning on the target; other limits that it breaks are warnings. Raise TypeError or ValueError, one
    sentence, for a wrong call. What the kernel or the reference raise in this process is theirs.
    """
    __tracebackhide__ = True
    figures = _tolerance(tolerance)
    kinds = _kinds(hostile, reference)
    taken = _taken(kernel_or_program, inputs, seed)
    program, order = _program(kernel_or_program, taken, _launch(target, nki, lnc, grid))
    buffers = [buffer for _, buffer in program.parameter_buffers]
    values = [array.values for array in taken.arrays]
    first: Diagnosis | None = None
    for kind in (AS_GIVEN, *kinds):
        given = values if kind == AS_GIVEN else _hostile(values, taken, kind)
        found, wanted = _diagnosed(program, buffers, order, taken, given, reference, seconds)
        compared = [_Compared(*each) for each in zip(found.outputs, wanted, strict=True)]
        failed = [each for each in compared if not each.passes(figures)]
        if failed:
            raise AssertionError(_message(program, found, failed, kind, figures))
        first = first or found
    assert first is not None
    return first


# The call


@dataclass(frozen=True)
class _Launch:
    target: str
    release: Release
    lnc: int
    grid: Any


def _launch(target: str, nki: str, lnc: int, grid: Any) -> _Launch:
    if lnc not in (1, 2) or isinstance(lnc, bool):
        raise ValueError(f"lnc={lnc!r}: expected 1 or 2")
    return _Launch(hardware.target(target).name, Release.parse(nki), lnc, grid)


def _tolerance(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"tolerance={given!r}: expected a pair (rtol, atol)")
    if not all(isinstance(each, int | float) and 0 <= each < math.inf for each in given):
        raise ValueError(f"tolerance={given!r}: expected two finite numbers of at least 0, (rtol, atol)")
    return float(given[0]), float(given[1])


def _kinds(hostile: Sequence[str], reference: Any) -> tuple[str, ...]:
    kinds = (hostile,) if isinstance(hostile, str) else tuple(hostile)
    for kind in kinds:
        if kind not in HOSTILE:
            raise ValueError(f"hostile={kind!r}: expected some of {', '.join(HOSTILE)}")
    if kinds and not callable(reference):
        raise ValueError(
            "hostile inputs need a reference that is a function: expected arrays are of one input only"
        )
    return kinds


def _taken(kernel: Any, inputs: Any, seed: int) -> Arguments:
    """The call, with its arrays apart."""
    if isinstance(inputs, Mapping):
        args: tuple[Any, ...] = ()
        names = {str(name): value for name, value in inputs.items()}
    elif isinstance(inputs, list | tuple):
        args, names = tuple(inputs), {}
    else:
        raise TypeError(
            f"inputs is a {type(inputs).__name__}: expected a list of the kernel's arguments, or a dict of them by name"
        )
    args = tuple(_drawn(f"{at}", value, seed) for at, value in enumerate(args))
    keywords = {name: _drawn(name, value, seed) for name, value in names.items()}
    function = _function(kernel)
    try:
        return Arguments(args, keywords, names_of(function) if function is not None else ())
    except Refusal as error:
        raise ValueError(str(error)) from None


def _drawn(name: str, value: Any, seed: int) -> Any:
    if getattr(value, "dtype", None) == np.float64 and np.ndim(value):
        raise ValueError(
            f"input {name} is float64, which no kernel takes: expected float32 or another dtype of NKI"
        )
    if not isinstance(value, str) or not _SPECIFIED.match(value.strip()):
        return value
    _, spec = parse_input(f"x={value.strip().replace(' ', '')}")
    assert isinstance(spec, Spec)
    return draw_all({name: spec}, seed)[name]


def _hostile(values: Sequence[Array], taken: Arguments, kind: str) -> list[Array]:
    changed = made_hostile(dict(zip(taken.paths, values, strict=True)), kind)
    if changed is None:
        raise ValueError(f"hostile={kind!r}: none of the inputs allows it ({HOSTILE[kind].sentence})")
    return [changed[path] for path in taken.paths]


# The Program


def _function(kernel: Any) -> Callable[..., Any] | None:
    """The Python function behind a kernel; None for a Program or a path."""
    if isinstance(kernel, Program | str | Path):
        return None
    if isinstance(kernel, Kernel):
        return kernel.function
    for found in (
        inspect.unwrap(kernel),
        *(getattr(kernel, name, None) for name in ("func", "function", "fn")),
    ):
        if inspect.isfunction(found):
            return found
    raise TypeError(
        f"{type(kernel).__name__} is no kernel: expected a function decorated with nki.jit, a text such as "
        "'kernel.py:softmax', or a Program"
    )


def _program(kernel: Any, taken: Arguments, launch: _Launch) -> tuple[Program, list[int]]:
    """The Program, and for each of its parameters which of the call's arrays it is."""
    __tracebackhide__ = True
    function = _function(kernel)
    if isinstance(kernel, Program):
        program, order = kernel, _bound(kernel, taken)
    elif function is None:
        program, order = _in_child(*_named(str(kernel)), taken, launch)
    elif isinstance(kernel, Kernel) or not _foreign(function):
        program, order = (
            _here(function, getattr(kernel, "grid", None), taken, launch),
            [*range(len(taken.arrays))],
        )
    else:
        program, order = _in_child(Path(function.__code__.co_filename), function.__name__, taken, launch)
    head = program.header
    for violation in verify(program):
        where = f"on {head.target}, NKI {head.release}: {violation.message}"
        if violation.unsupported or violation.blocking:
            raise AssertionError(f"kernel {head.kernel} has no meaning {where}")
        warnings.warn(f"kernel {head.kernel} is not legal {where}", stacklevel=3)
    return program, order


def _foreign(function: Callable[..., Any]) -> bool:
    """True where a function uses modules of the SDK itself, which do not record."""
    held = getattr(function, "__globals__", {}).values()
    used = [each for each in held if isinstance(each, ModuleType) and each.__name__.split(".")[0] in ROOTS]
    return any(getattr(module, "__file__", None) for module in used)


def _here(function: Callable[..., Any], own: Any, taken: Arguments, launch: _Launch) -> Program:
    __tracebackhide__ = True
    grid = launch.grid if launch.grid is not None else own
    if isinstance(grid, str):
        grid = tuple(int(size) for size in grid.split(",")) if re.fullmatch(r"\d+(,\d+)*", grid) else grid
    if not is_legacy(function):
        if launch.grid is not None:
            raise ValueError(
                f"grid={launch.grid!r}: a grid of instances belongs to kernels of neuronxcc.nki; for two cores give "
                "lnc=2"
            )
        grid = launch.lnc if launch.lnc > 1 else own
    try:
        return recorded(function, grid, taken, Settings(launch.target, launch.release))[0]
    except NotYetSupported as error:
        raise AssertionError(f"kernel {function.__name__} cannot be judged: {error}") from None


def _named(text: str) -> tuple[Path, str | None]:
    """File and kernel of ``file.py:kernel``, or of a file with one kernel."""
    file, colon, name = text.rpartition(":")
    if not colon or text.endswith(".py"):
        file, name = text, ""
    if not file.endswith(".py") or (name and not name.replace(".", "_").isidentifier()):
        raise ValueError(f"{text!r} names no kernel: expected file.py:kernel")
    return Path(file), name or None


@dataclass(frozen=True)
class _Given:
    """Inputs that are there: what `tracing` asks an input source for."""

    arguments: carried.Arguments

    def structure(self, server: ForkServer, limits: Limits) -> carried.Arguments:
        return self.arguments

    def make(self, seed: int, server: ForkServer, limits: Limits) -> carried.Arguments:
        return self.arguments


def _in_child(file: Path, name: str | None, taken: Arguments, launch: _Launch) -> tuple[Program, list[int]]:
    """Traced in a child process, as the commands do."""
    __tracebackhide__ = True
    try:
        source = read_source(file)
        kernel = choose_kernel(source, name)
    except SourceError as error:
        raise ValueError(str(error)) from None
    numbered = [np.array([at], np.int32) for at in range(len(taken.arrays))]
    args, keywords = taken.filled(lambda number: taken.arrays[number].values)
    given = carried.Arguments(tuple(args), keywords)
    args, keywords = taken.filled(lambda number: numbered[number])
    order = [int(each[0]) for each in carried.Arguments(tuple(args), keywords).arrays()]
    asked = launch.grid
    if asked is not None and not isinstance(asked, str):
        asked = ",".join(map(str, asked if isinstance(asked, tuple | list) else (asked,)))
    settled = settle_grid(asked, None)
    request = Request(
        source=source,
        file=file,
        kernel=kernel,
        reference=None,
        workloads=(workload := Workload("inputs", _Given(given)),),
        target=Setting(value=launch.target, origin="the call"),
        release=Setting(value=str(launch.release), origin="the call"),
        lnc=settle_lnc(launch.lnc if launch.lnc > 1 else None, None, settled),
        grid=settled,
    )
    try:
        subject_of(request)
        with ForkServer() as server:
            return program_of(request, workload, server, lambda _: None)[0], order
    except NotJudged as error:
        raise AssertionError(f"kernel {kernel} cannot be judged: {error}") from None
    except carried.ArgumentError as error:
        raise ValueError(str(error)) from None


def _bound(program: Program, taken: Arguments) -> list[int]:
    """Which array each parameter of a Program gets: by name where they have them, in order otherwise."""
    paths = [path for path, _ in program.parameter_buffers]
    if len(paths) != len(taken.arrays):
        raise ValueError(
            f"the Program takes {len(paths)} arrays ({', '.join(paths)}), inputs has {len(taken.arrays)}"
        )
    by_name = {path: at for at, path in enumerate(taken.paths)}
    order = [by_name[path] for path in paths] if set(by_name) == set(paths) else [*range(len(paths))]
    for (path, number), at in zip(program.parameter_buffers, order, strict=True):
        buffer, array = program.buffer(number), taken.arrays[at]
        if buffer.shape != array.values.shape or buffer.dtype != array.dtype:
            raise ValueError(
                f"parameter {path} of the Program is {buffer.dtype}{list(buffer.shape)}, the input is "
                f"{array.dtype}{list(array.values.shape)}"
            )
    return order


# The reference


def _diagnosed(
    program: Program,
    buffers: Sequence[int],
    order: Sequence[int],
    taken: Arguments,
    values: Sequence[Array],
    reference: Any,
    seconds: float | None,
) -> tuple[Diagnosis, list[Float64]]:
    """The diagnosis, and what the reference gave."""
    __tracebackhide__ = True
    again: Callable[[Sequence[Array]], Sequence[Array]] | None = None
    observed: Callable[[], Sequence[Observation]] | None = None
    notes: list[str] = []
    if callable(reference):
        wanted, wide = _called(reference, taken, values)
        notes += [] if wide else [OWN_DTYPES]

        def again(arrays: Sequence[Array]) -> Sequence[Array]:
            changed = list(values)
            for at, array in zip(order, arrays, strict=True):
                changed[at] = array
            return _called(reference, taken, changed)[0]

        def observed() -> Sequence[Observation]:
            args, keywords = _filled(taken, values, wide)
            try:
                return observe(reference, args, keywords)[1]
            except Exception as error:  # it may refuse arrays that are watched in any way
                raise ValueError(f"{type(error).__name__}: {error}") from None

    else:
        wanted = _flat(reference)
    if not wanted:
        raise TypeError("the reference gave no array: expected one for each output of the kernel")
    given = {buffer: values[at] for buffer, at in zip(buffers, order, strict=True)}
    try:
        found = diagnose(program, given, wanted, reference=again, observed=observed, seconds=seconds)
    except ValueError as error:
        raise AssertionError(
            f"kernel {program.header.kernel} does not match its reference: {error}"
        ) from None
    return replace(found, skipped=(*found.skipped, *notes)), wanted


def _called(
    reference: Callable[..., Any], taken: Arguments, values: Sequence[Array]
) -> tuple[list[Float64], bool]:
    """What the reference gives, with floats in float64 or, where it does not take those, as they are; and which."""
    __tracebackhide__ = True

    def call(wide: bool) -> list[Float64]:
        __tracebackhide__ = True
        args, keywords = _filled(taken, values, wide)
        return _flat(reference(*args, **keywords))

    # whatever it is that it does not take in float64: what it raises without is told
    with suppress(Exception):
        return call(True), True
    return call(False), False


def _filled(taken: Arguments, values: Sequence[Array], wide: bool) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a call with those values."""
    return taken.filled(lambda number: _as_given(taken.arrays[number], values[number], wide))


def _as_given(array: HostArray, values: Array, wide: bool) -> Any:
    """Values as an array of the caller's library; floats in float64, of which jax has none."""
    dtype = dtypes.BY_NAME[array.dtype]
    if not wide or dtype.kind != "float":
        stored = values if values.dtype == dtype.storage else dtypes.cast(values, dtype)
        return result(stored, array.dtype, array.library)
    numbers = values if values.dtype == np.float64 else dtypes.to_compute(values, dtype, np.float64)
    if array.library == "torch":
        return sys.modules["torch"].from_numpy(np.array(numbers))
    return np.array(numbers)


def _flat(found: Any) -> list[Float64]:
    """The arrays in what a reference returned, in float64."""
    if isinstance(found, Mapping):
        found = list(found.values())
    if isinstance(found, list | tuple):
        return [array for each in found for array in _flat(each)]
    if hasattr(found, "detach"):
        found = found.detach().cpu().double().numpy()
    array = np.asarray(found)
    if array.dtype.kind in "OUSMm":
        raise TypeError(f"the reference gave a {type(found).__name__}: expected an array, or a list of them")
    return [array.astype(np.float64)]


# The verdict


@dataclass(frozen=True, eq=False)
class _Compared:
    """An output and its reference."""

    output: OutputDiagnosis
    wanted: Float64

    def passes(self, tolerance: tuple[float, float] | None) -> bool:
        if tolerance is None:
            return self.output.verdict == "rounding"
        return bool(self.within(tolerance).all())

    def within(self, tolerance: tuple[float, float]) -> NDArray[np.bool_]:
        """Which elements keep to a tolerance."""
        got, wanted = self.output.values, self.wanted
        with np.errstate(invalid="ignore"):
            near = np.abs(got - wanted) <= tolerance[1] + tolerance[0] * np.abs(wanted)
        return np.asarray(near | (got == wanted) | (np.isnan(got) & np.isnan(wanted)))


def _message(
    program: Program,
    found: Diagnosis,
    failed: Sequence[_Compared],
    kind: str,
    tolerance: tuple[float, float] | None,
) -> str:
    """All that is known, the sentence first."""
    head = program.header
    inputs = "" if kind == AS_GIVEN else f" on {kind} inputs"
    what = (
        "does not match its reference" if found.verdict == "defect" else "exceeds the tolerance given, though"
    )
    colon = ":" if found.verdict == "defect" else ""
    lines = [f"kernel {head.kernel} on {head.target} {what}{inputs}{colon} {found.sentence}"]
    for cause in found.causes:
        place = f" at {cause.line}" if cause.line else ""
        told = f": {cause.sentence}" if cause.sentence != found.sentence else ""
        lines.append(f"  cause: {cause.name}{place}, shown by: {cause.evidence}{told}")
    if found.deviation:
        lines.append(f"  first deviation: {found.deviation}")
    for output in failed:
        lines += [f"  {line}" for line in _told(output, tolerance)]
    lines += [f"  skipped: {each}" for each in found.skipped]
    return "\n".join(lines)


def _told(compared: _Compared, tolerance: tuple[float, float] | None) -> list[str]:
    output, rounding = compared.output, compared.output.tolerance
    allowed = float(rounding.allowed[output.index])
    lines = [f"output {output.name} {rounding.dtype}{list(compared.wanted.shape)}:"]
    if tolerance is not None:
        beyond = int(np.count_nonzero(~compared.within(tolerance)))
        lines.append(
            f"  {beyond:,} of {output.elements:,} elements exceed rtol {tolerance[0]:g}, atol {tolerance[1]:g}"
        )
    times = f"{output.use:.3g} times" if math.isfinite(output.use) else "infinitely beyond"
    lines += [
        f"  {output.over:,} of {output.elements:,} elements exceed what rounding explains",
        f"  worst at {list(output.index)}: {output.got:.9g} where the reference has {output.wanted:.9g}, {times} the "
        f"{allowed:.3g} allowed there",
    ]
    lines += [f"  {pattern.name}: {pattern.sentence}" for pattern in output.patterns]
    if dtypes.BY_NAME[rounding.dtype].kind == "float":
        best = chosen(rounding.allowed, compared.wanted, rounding.dtype)
        lines.append(f"  rounding explains rtol {best.rtol:.1e}, atol {best.atol:.1e} x rms of the row")
    return lines
