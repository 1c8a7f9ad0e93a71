"""Stored roundings: how often a value was rounded to a narrow float on its way to an output, and in what manner.

The engines compute in float32 and round when they write. What a Program stores in a float of fewer digits is rounded
there, and the data flow alone says where:

* a write rounds where its tile is a float narrower than float32, unless it only moves, selects or compares values
  that the tile holds; parameters and constants count as given;
* a value has the roundings of the operand that has most of them, and its own;
* a running sum is one that was rounded, added to and rounded again: its `terms` count these roundings. A factor, a
  copy or a maximum between two additions does not end it, a function or a matmul does, unless it accumulates beside
  products of values with other roundings, as one with the identity that carries a sum on does;
* an overwrite of all of a buffer, of the same view or of all that a view held replaces; any other write adds to it.

Values are kept for each buffer and, on chip, for each view written; a read takes the most of those it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nkireview.checks.boxes import Box, bits, box_of, holds, overlap
from nkireview.checks.recipes import recipes
from nkireview.checks.steps import ACTIVATIONS, MATMUL
from nkireview.isa import dtypes
from nkireview.isa.row import Flow, Role, Row
from nkireview.program.call import CallView
from nkireview.program.loops import Nest, known_trips, nests
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import WHOLE, Storage, role_of, storage

ADDING = frozenset({"add", "subtract", "average"})
FACTORS = frozenset({"multiply"})
EXACT = frozenset(
    {"copy", "bypass", "maximum", "minimum", "abs", "abs_max", "abs_min", "relu"}
    | {"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"}
)
"""Operators whose result is an operand, an operand with another sign, 0 or 1."""
MOVES = frozenset(
    {
        "dma_copy",
        "dma_transpose",
        "tensor_copy",
        "nc_transpose",
        "nc_stream_shuffle",
        "local_gather",
        "nc_n_gather",
    }
    | {
        "affine_select",
        "range_select",
        "select_reduce",
        "tensor_copy_predicated",
        "max8",
        "nc_match_replace8",
    }
    | {"sendrecv", "all_gather", "all_gather_v", "all_to_all", "all_to_all_v"}
    | {"collective_permute", "collective_permute_implicit"}
)
COUNTED = 32
"""Roundings of one path that are told apart."""
REPEATED = 5
"""Times that the body of a device-side loop is followed."""
VISITS = 32
"""Visits for each instruction, after which the bodies of loops are followed once."""
VIEWS = 32
"""Views of one buffer that are told apart; with more, the buffer holds one value."""
_BUFFER = -1
_WIDE = "float32"


@dataclass(frozen=True)
class Stored:
    """The roundings on the way to an output, that of its own dtype left out.

    `instructions`: those of the longest path that round, in order. `dtype`: the one of fewest digits among all that
    reach the output, empty where there is none. `terms`: roundings of the longest running sum. `known` is False
    where an instruction of no known row is on the way; then nothing may be concluded.
    """

    instructions: tuple[int, ...]
    dtype: str
    terms: int
    known: bool = True

    @property
    def count(self) -> int:
        """Roundings on the longest path, at most `COUNTED`."""
        return len(self.instructions)


@dataclass(frozen=True)
class _Value:
    """What a place holds. `run`: roundings of the sum that it is; `carried`: of the sum that a matmul made it of;
    `added`: it was added to since it was rounded."""

    path: tuple[int, ...] = ()
    dtype: str = ""
    run: int = 0
    carried: int = 0
    terms: int = 0
    added: bool = False
    known: bool = True

    def joined(self, other: _Value) -> _Value:
        """The most of both."""
        if other is self or other == _GIVEN:
            return self
        return _Value(
            self.path if len(self.path) >= len(other.path) else other.path,
            _coarser(self.dtype, other.dtype),
            max(self.run, other.run),
            max(self.carried, other.carried),
            max(self.terms, other.terms),
            self.added or other.added,
            self.known and other.known,
        )


_GIVEN = _Value()


@dataclass(frozen=True)
class _Write:
    """What a call does to a written operand; `dtype` is empty where nothing is rounded."""

    slot: int
    dtype: str
    accumulates: bool
    constant: bool
    keeps: bool
    contracts: bool
    adds: bool
    known: bool = True


@dataclass(frozen=True)
class _Recipe:
    reads: tuple[int, ...]
    writes: tuple[_Write, ...]


def stored_roundings(
    program: Program, rows: Mapping[str, Row], trips: Mapping[int, int] | None = None
) -> tuple[Stored, ...]:
    """The stored roundings of each output; see this module for the rule.

    trips: index of a loop in the program -> its trip count, where its bounds are not numbers.
    Raise ProgramError where the header names an unknown target or release.
    """
    walk = _Walk(Scope.of(program, rows), storage(program, rows), known_trips(program, trips))
    # what one stream writes another may read, and their order is not known
    for _ in program.streams[:2]:
        walk.run()
    found = []
    for output in program.outputs:
        value = walk.of(output.access)
        own = 1 if narrow(program.access(output.access).dtype) else 0
        path = value.path[: len(value.path) - own] if value.path else ()
        found.append(Stored(path, value.dtype if path else "", value.terms, value.known))
    return tuple(found)


def narrow(name: str) -> bool:
    """True for floats of fewer digits than float32."""
    dtype = dtypes.BY_NAME[name]
    return dtype.kind == "float" and dtype.significand_bits < dtypes.BY_NAME[_WIDE].significand_bits


class _Walk:
    """What each place holds, from the first instruction to the last."""

    def __init__(self, scope: Scope, held: Storage, trips: Mapping[int, int]) -> None:
        program = scope.program
        self._trips = trips
        columns = program.columns
        self._scope, self._program, self._held = scope, program, held
        self._at: list[int] = columns.operand_at.tolist()
        self._access: list[int] = columns.operand.tolist()
        self._place: list[int] = held.place.tolist()
        self._whole: list[int] = (held.use & WHOLE).tolist()
        self._recipes, recipe = recipes(scope, _recipe, _unknown)
        self._recipe: list[int] = recipe.tolist()
        self._content: dict[int, dict[int, _Value]] = {}
        self._boxes: dict[int, tuple[Box | None, bool]] = {}
        self._visits = 0
        self._loops: Sequence[Sequence[Nest]]
        try:
            self._loops = nests(program)
        except ValueError:
            self._loops = [()] * len(program.streams)

    def run(self) -> None:
        """Go through all streams once, on top of what was held before."""
        for stream, loops in zip(self._program.streams, self._loops, strict=True):
            self._walk(stream.start, stream.stop, loops)

    def of(self, access: int) -> _Value:
        """What an access would read."""
        return self._read(int(self._held.of_buffer[self._program.columns.access_buffer[access]]), access)

    def _walk(self, start: int, stop: int, loops: Sequence[Nest]) -> None:
        for nest in loops:
            self._straight(start, nest.loop.start)
            for _ in range(max(min(self._trips.get(id(nest.loop), 1), REPEATED), 1)):
                self._walk(nest.loop.start, nest.loop.stop, nest.inner)
                if self._visits > VISITS * len(self._program):
                    break
            start = nest.loop.stop
        self._straight(start, stop)

    def _straight(self, start: int, stop: int) -> None:
        self._visits += max(stop - start, 0)
        for index in range(start, stop):
            recipe, begin = self._recipes[self._recipe[index]], self._at[index]
            taken = _GIVEN
            for slot in recipe.reads:
                if self._access[begin + slot] >= 0:
                    taken = self._read(self._place[begin + slot], self._access[begin + slot]).joined(taken)
            for write in recipe.writes:
                at = begin + write.slot
                if self._access[at] >= 0:
                    held = self._read(self._place[at], self._access[at]) if write.accumulates else _GIVEN
                    self._write(at, _result(write, taken, held, index))

    def _read(self, place: int, access: int) -> _Value:
        found = _GIVEN
        for near in (place, *self._held.touching.get(place, ())):
            content = self._content.get(near)
            if not content:
                continue
            same = content.get(access) if len(content) == 1 else None
            for value in (same,) if same is not None else self._overlapping(content, access):
                found = value.joined(found)
        return found

    def _overlapping(self, content: Mapping[int, _Value], access: int) -> Iterator[_Value]:
        box = self._box(access)[0]
        for view, value in content.items():
            other = None if view == _BUFFER else self._box(view)[0]
            if box is None or other is None or overlap(box, other):
                yield value

    def _write(self, slot: int, value: _Value) -> None:
        place, access = self._place[slot], self._access[slot]
        box, dense = self._box(access)
        view = _BUFFER if box is None else access
        if self._whole[slot]:
            self._content[place] = {view: value}
            for other in self._held.inside.get(place, ()):
                self._content.pop(other, None)
            return
        content = self._content.setdefault(place, {})
        if box is None:
            value = value.joined(content.get(view, _GIVEN))
        elif dense:
            for other in [other for other in content if other not in (view, _BUFFER)]:
                inner = self._box(other)[0]
                if inner is not None and holds(box, inner):
                    del content[other]
        content[view] = value
        if len(content) > VIEWS:
            joined = _GIVEN
            for each in content.values():
                joined = each.joined(joined)
            self._content[place] = {_BUFFER: joined}

    def _box(self, access: int) -> tuple[Box | None, bool]:
        """What an access on chip may touch, and whether it touches all of that."""
        found = self._boxes.get(access)
        if found is None:
            tile = self._scope.tile(access)
            box = box_of(tile)
            found = self._boxes[access] = box, box is not None and bits(box) == tile.access.size * tile.bits
        return found


def _result(write: _Write, taken: _Value, held: _Value, index: int) -> _Value:
    if write.constant:
        return _GIVEN
    value = taken if write.keeps else replace(taken, run=0, carried=taken.run if write.contracts else 0)
    unequal = write.contracts and held.added and len(held.path) != len(value.path)
    value = replace(value.joined(held), added=value.added or held.added or write.adds)
    if unequal:
        value = replace(value, run=max(value.run, value.carried))
    if not write.known:
        return replace(value, known=False)
    if not write.dtype:
        return value
    run = value.run + value.added
    path = value.path if len(value.path) >= COUNTED else (*value.path, index)
    return _Value(
        path, _coarser(value.dtype, write.dtype), run, terms=max(value.terms, run), known=value.known
    )


def _coarser(a: str, b: str) -> str:
    if not (a and b):
        return a or b
    return min(a, b, key=lambda name: dtypes.BY_NAME[name].significand_bits)


def _unknown(operands: int) -> _Recipe:
    every = tuple(range(operands))
    return _Recipe(
        every, tuple(_Write(slot, "", False, False, True, False, False, known=False) for slot in every)
    )


def _recipe(call: CallView, names: Sequence[str]) -> _Recipe:
    reads, writes = [], []
    for slot, name in enumerate(names):
        role = role_of(call.row.operand(name), call.immediates)
        if role is Role.read:
            reads.append(slot)
        elif call.has(name):
            flow = call.row.flow[name]
            used = operators(call, name)
            contracts = flow is Flow.contract and bool(used)
            writes.append(
                _Write(
                    slot,
                    dtype=call.dtype(name) if _rounds(call, name, used) else "",
                    accumulates=role is Role.accumulate,
                    constant=flow is Flow.nothing,
                    keeps=not contracts and used <= ADDING | FACTORS | EXACT,
                    contracts=contracts,
                    adds=contracts or bool(used & ADDING),
                )
            )
    return _Recipe(tuple(reads), tuple(writes))


def _rounds(call: CallView, name: str, used: frozenset[str]) -> bool:
    dtype = dtypes.BY_NAME[call.dtype(name)]
    if not narrow(dtype.name):
        return False
    reads = [
        dtypes.BY_NAME[call.dtype(operand.name)]
        for operand in call.row.operands
        if operand.role is Role.read and call.has(operand.name)
    ]
    held = all(read.significand_bits <= dtype.significand_bits for read in reads if read.kind == "float")
    return not (held and used <= EXACT)


def operators(call: CallView, name: str) -> frozenset[str]:
    """The operators between what a call reads and what it writes there, by name."""
    row = call.row.name
    if row in MOVES or (row == MATMUL and call.imm("is_transpose")):
        return frozenset()
    found = {str(call.imm(key)) for key in ("op", "op0", "op1") if call.imm(key) is not None}
    if row in ACTIVATIONS:
        if call.has("bias") or call.imm("bias"):
            found.add("add")
        if call.has("scale") or call.imm("scale") not in (None, 1.0):
            found.add("multiply")
        if name == "reduce_res":
            found.add(str(call.imm("reduce_op") or "add"))
    return frozenset(found) or frozenset({row})
