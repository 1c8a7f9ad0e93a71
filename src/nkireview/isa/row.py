"""What one row of the instruction table is made of: frozen data that recorders, verify, execute and schedule read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import GENERATIONS, Engine, Memory
from nkireview.isa.limit import Call, Limit
from nkireview.isa.release import ALWAYS, Release, Span


class Role(Enum):
    """What an instruction does with an operand."""

    read = "read"
    write = "write"
    accumulate = "accumulate"

    @property
    def reads(self) -> bool:
        """True where the old content matters."""
        return self is not Role.write

    @property
    def writes(self) -> bool:
        """True where the content changes."""
        return self is not Role.read


class Flow(Enum):
    """Which elements of the read operands an element of a written operand depends on."""

    nothing = "nothing"  # no read operand: memset, iota
    elementwise = (
        "elementwise"  # the same element (in element order); vectors broadcast over the free dimensions
    )
    row = "row"  # every element of the same partition
    scan = "scan"  # the elements up to the same one in the same partition
    contract = "contract"  # matmul: row m of stationary.T and column n of moving
    transpose = "transpose"  # the transposed element
    select = "select"  # the same element, only where the predicate is true
    whole = "whole"  # every element of every read operand: gathers, reductions over partitions


@dataclass(frozen=True)
class Operand:
    """A tensor argument: its role, and where it may live."""

    name: str
    role: Role
    memories: frozenset[Memory]
    dtypes: frozenset[str] | None = None  # None: any NKI dtype
    optional: bool = False
    number: bool = False  # a Python number may stand in its place
    vector: bool = False  # one element a partition, broadcast over the free dimensions
    indirect: bool = False  # may be a view made by NkiTensor.indirect (v4)
    plain_if: str = ""  # an immediate whose truth makes an accumulated operand a plain write
    adds_if: str = ""  # an immediate whose truth makes a written operand an accumulated one

    def role_in(self, immediates: Mapping[str, Any]) -> Role:
        """The role in a call with these immediates."""
        if self.adds_if and self.role is Role.write and immediates.get(self.adds_if):
            return Role.accumulate
        if self.plain_if and self.role is Role.accumulate and immediates.get(self.plain_if):
            return Role.write
        return self.role


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


@dataclass(frozen=True)
class Param:
    """One parameter of the call, in positional order, with the releases that know it.

    `register`: a register may stand in place of its number. A parameter whose default depends on the release is there
    once for each, with spans that do not meet.
    """

    name: str
    default: Any = REQUIRED
    span: Span = ALWAYS
    register: bool = False


@dataclass(frozen=True)
class Engines:
    """Engines that ``engine=`` may name, by generation, and the one that runs a call which names none.

    `choose` looks at the operands of a call (None: always `default`); `honoured` are the releases in which
    ``engine=`` decides where the instruction runs.
    """

    default: Engine
    allowed: Mapping[Engine, frozenset[str]]
    choose: Callable[[Call], Engine] | None = None
    honoured: Span = ALWAYS

    def resolve(self, call: Call) -> Engine:
        """The engine that runs this call: the one asked for, else the default for its operands."""
        asked = call.engine
        if asked is not Engine.unknown and call.release in self.honoured:
            return asked
        return self.choose(call) if self.choose else self.default


@dataclass(frozen=True)
class Rate:
    """Another number of cycles for each element, for the calls that `applies` accepts (`when` says which)."""

    per_element: float | str | Callable[[Call], float]  # cycles, the path of a hardware figure, or a formula
    when: str
    applies: Callable[[Call], bool]
    generations: frozenset[str] = frozenset(GENERATIONS)
    source: str = ""


@dataclass(frozen=True)
class Cost:
    """Initiation interval in cycles of the engine: ``max(minimum, per_element * N) + extra``.

    N is the number of elements a partition of `subject` (empty: 0); `minimum` and `extra` name figures of
    `hardware/`. The first of `rates` that applies replaces `per_element`; `extra` counts only where the operand
    `extra_for` is given (empty: always). An instruction of several `passes` needs the minimum for each, and each no
    less than the `load` of what it holds still, which hides behind the pass before.
    """

    subject: str
    per_element: float | str
    minimum: str | None = None
    extra: str | None = None
    formula: str = ""
    source: str = ""
    rates: tuple[Rate, ...] = ()
    extra_for: str = ""
    passes: Callable[[Call], int] = lambda call: 1
    load: Callable[[Call], float] = lambda call: 0.0

    def cycles_per_element(self, call: Call) -> float:
        """Cycles for each element of the subject in this call."""
        generation = call.hardware.generation
        per: float | str | Callable[[Call], float] = self.per_element
        for rate in self.rates:
            if generation in rate.generations and rate.applies(call):
                per = rate.per_element
                break
        if isinstance(per, str):
            return call.hardware.number(per)
        return per(call) if callable(per) else per

    def interval(self, call: Call) -> float:
        """The documented initiation interval of this call, in cycles of its engine."""
        elements = call.measure(self.subject, "free") if self.subject else 0
        passes = self.passes(call)
        each = max(self.cycles_per_element(call) * elements / passes, self.load(call))
        if self.minimum:
            each = max(each, call.hardware.number(self.minimum))
        cycles = passes * each
        if self.extra and (not self.extra_for or call.has(self.extra_for)):
            cycles += call.hardware.number(self.extra)
        return cycles


@dataclass(frozen=True)
class Bits:
    """A result stored bit for bit: the destination's storage dtype must equal the array's."""

    array: NDArray[Any]


class Shapes(Protocol):
    """What a meaning knows of its operands before it sees their values; the same for each call of that kind."""

    compute: np.dtype[Any]
    generation: str
    release: Release

    @property
    def engine(self) -> Engine:
        """The engine that runs the instruction."""

    def has(self, name: str) -> bool:
        """True where the operand is a tile, False where it is a number or absent."""

    def dtype(self, name: str) -> DataType:
        """The dtype of a tile."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tile."""

    @property
    def imm(self) -> Callable[[str], Any]:
        """An immediate, as it was passed (operators by name, enumerations by member name); None if absent.

        A register in its place shows the number it holds.
        """


class Reader(Shapes, Protocol):
    """How a meaning sees its operands: values in the compute dtype, raw storage, immediates and engine state."""

    state: dict[str, NDArray[Any]]

    def value(self, name: str) -> NDArray[Any]:
        """A tile's values in the compute dtype, in the access's shape (partition axis first on chip)."""

    def raw(self, name: str) -> NDArray[Any]:
        """A tile's storage, in the access's shape."""

    @property
    def peers(self) -> tuple[Reader, ...]:
        """The readers of all that take part in an instruction that `meets`: cores, or ranks in group order."""

    @property
    def position(self) -> int:
        """The position of this reader among its peers."""


Result = NDArray[Any] | Bits
Meaning = Callable[[Reader], dict[str, Result]]
"""From operands to results: by written operand, and by the parameters of `Row.registers` a number.

Infinities and NaN are results: who calls one silences NumPy's floating-point warnings, as `execute` does.
"""

Compute = Callable[..., object]


@dataclass(frozen=True, eq=False)
class Plan:
    """A result `dst` that is one computation on arrays, the same for each call with operands of these shapes.

    ``compute(*arrays, out=out)`` takes the values of the tiles that `takes` names and leaves the result, of `shape` and
    in the compute dtype, in `out`, which may lie on one of the arrays: it writes to `out` only once it needs none of
    them any more. bits: all of them are storage, and `out` has that of dst.
    """

    takes: tuple[str, ...]
    shape: tuple[int, ...]
    compute: Compute
    bits: bool = False

    def result(self, reader: Reader) -> Result:
        """The result in an array of its own."""
        arrays = [reader.raw(name) if self.bits else reader.value(name) for name in self.takes]
        dtype = arrays[0].dtype if self.bits else reader.compute
        out: NDArray[Any] = np.empty(self.shape, dtype)
        self.compute(*arrays, out=out)
        return Bits(out) if self.bits else out


@dataclass(frozen=True, eq=False)
class Planned:
    """A meaning that is a `Plan` where `plan` gives one, and `otherwise` where it gives None."""

    plan: Callable[[Shapes], Plan | None]
    otherwise: Meaning | None = None

    def __call__(self, reader: Reader) -> dict[str, Result]:
        """See `Meaning`."""
        plan = self.plan(reader)
        if plan is not None:
            return {"dst": plan.result(reader)}
        assert self.otherwise is not None
        return self.otherwise(reader)


Reach = Callable[[Reader, Mapping[str, NDArray[np.bool_]]], NDArray[np.bool_]]
"""From a call and the definedness of the tiles that are not fully defined to that of a result, in element order."""


@dataclass(frozen=True)
class Legacy:
    """How the legacy generation spells the row."""

    name: str
    form: str  # "returns" a value, takes "dst", or has no name of its own and is "inside" the nl function `name`


@dataclass(frozen=True)
class Row:
    """One instruction: signature, operands, limits, engines, generations, releases, cost and meaning.

    `signature` is in the order of the latest release; `orders` gives the positional order of releases that
    differ, see `parameters`. `lists` names, for a parameter that takes a list of tensors, the optional operands that
    its elements become. `registers` are parameters that name a register the instruction writes, an immediate
    ``("register", n)``; one whose default is None is fresh and what the call returns. A parameter with `register`
    may be read from a register in the same way. `meets` says whom the instruction waits for: its peers among the
    ``cores`` of a launch or the ``ranks`` of a group. `undefined` says why `reach` calls elements undefined where all
    that is read is defined.
    """

    name: str
    signature: tuple[Param, ...]
    operands: tuple[Operand, ...]
    engines: Engines
    meaning: Meaning
    flow: Mapping[str, Flow]
    cost: Cost
    source: str
    limits: tuple[Limit, ...] = ()
    generations: frozenset[str] = frozenset(GENERATIONS)
    releases: Span = ALWAYS
    legacy: Legacy | None = None
    orders: tuple[tuple[Span, tuple[str, ...]], ...] = ()
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    registers: tuple[str, ...] = ()
    meets: str = ""
    reach: Mapping[str, Reach] = field(default_factory=dict)
    undefined: str = "an element that the instruction leaves undefined"
    namespace: str = "nki.isa"
    immediates: tuple[str, ...] = field(init=False)

    MEETS = ("", "cores", "ranks")

    def __post_init__(self) -> None:
        if self.meets not in self.MEETS:
            raise ValueError(f"{self.name}: meets {self.meets!r} is not one of {', '.join(self.MEETS)}")
        names = {operand.name for operand in self.operands}
        elements = {name for listed in self.lists.values() for name in listed}
        declared = {param.name for param in self.signature if param.name not in self.lists} | elements
        if not names <= declared:
            raise ValueError(f"{self.name}: operands {sorted(names - declared)} are not in the signature")
        if set(self.flow) != {operand.name for operand in self.operands if operand.role.writes}:
            raise ValueError(f"{self.name}: flow must name exactly the written operands")
        control = {"engine", "name", "dge_mode"}
        control |= set(self.lists)
        plain = tuple(p.name for p in self.signature if p.name not in names and p.name not in control)
        numbers = tuple(operand.name for operand in self.operands if operand.number)
        object.__setattr__(self, "immediates", tuple(dict.fromkeys(plain + numbers)))

    def parameters(self, release: Release) -> tuple[Param, ...]:
        """The parameters that a release knows, in its positional order."""
        known = {param.name: param for param in self.signature if release in param.span}
        for span, names in self.orders:
            if release in span:
                return tuple(known[name] for name in names)
        return tuple(known.values())

    def param(self, name: str, release: Release) -> Param | None:
        """The parameter of that name, the one of the release where there are several; None where there is none."""
        named = [param for param in self.signature if param.name == name]
        return next((param for param in named if release in param.span), named[-1] if named else None)

    def operand(self, name: str) -> Operand:
        """The operand of that name."""
        return next(operand for operand in self.operands if operand.name == name)
