"""Save and load a Program as npz with a JSON member. Loading trusts nothing and checks sizes before it allocates."""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.program.access import Bound, Index
from nkireview.program.columns import COLUMN_NAMES, Columns
from nkireview.program.errors import ProgramError
from nkireview.program.model import (
    DEFAULT_LIMITS,
    SCHEMA,
    Event,
    Frame,
    Header,
    Limits,
    Loop,
    Output,
    Source,
    Stream,
)
from nkireview.program.program import AccessExtra, Opcode, Program
from nkireview.program.tree import from_json, to_json

META = "program.json"


def save(program: Program) -> bytes:
    """The bytes of a Program."""
    constants = {digest: np.ascontiguousarray(values) for digest, values in program.constants.items()}
    meta = {
        "header": _header_json(program.header),
        "parameters": to_json(program.parameters),
        "outputs": [[output.access, output.alias, output.name] for output in program.outputs],
        "streams": [[s.core, s.instance, s.start, s.stop] for s in program.streams],
        "loops": [_loop_json(loop) for loop in program.loops],
        "events": [[event.kind, event.place, event.detail] for event in program.events],
        "places": [[[f.file, f.line, f.function] for f in place] for place in program.places],
        "opcodes": [[opcode.name, list(opcode.operands)] for opcode in program.opcodes],
        "immediates": [_spell(dict(row)) for row in program.immediates],
        "strings": list(program.strings),
        "dtypes": list(program.dtypes),
        "extras": [[number, *_extra_json(extra)] for number, extra in program.extras.items()],
        "buffer_constants": [[buffer, digest] for buffer, digest in program.buffer_constants.items()],
        "constants": [[key, values.dtype.name, list(values.shape)] for key, values in constants.items()],
    }
    arrays = {name: getattr(program.columns, name) for name in COLUMN_NAMES}
    arrays.update({f"c{n}": values.reshape(-1).view(np.uint8) for n, values in enumerate(constants.values())})
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(META, json.dumps(meta, allow_nan=False, separators=(",", ":")))
        for name, values in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, values, allow_pickle=False)
            archive.writestr(f"{name}.npy", member.getvalue())
    return target.getvalue()


def load(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Program:
    """The Program of `save`; ProgramError names what is malformed or too large."""
    try:
        return _load(data, limits)
    except ProgramError:
        raise
    except (
        zipfile.BadZipFile,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ProgramError(f"the program is malformed: {type(error).__name__}: {error}") from error


def _load(data: bytes, limits: Limits) -> Program:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise ProgramError("the program holds a member twice")
        for info in members.values():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(data):
                raise ProgramError(f"member {info.filename} is compressed or larger than the program")
        if META not in members:
            raise ProgramError(f"the program has no {META}")
        if members[META].file_size > limits.metadata_bytes:
            raise ProgramError(f"{META} exceeds {limits.metadata_bytes} bytes")
        meta = json.loads(archive.read(META).decode("utf-8"), parse_constant=_refuse_constant)
        header = _header(meta["header"])
        vectors = {name: _vector(archive, members, name) for name in COLUMN_NAMES}
        constants = _constants(archive, members, meta["constants"], limits)
    for name, table in (
        ("opcode", "instructions"),
        ("access_buffer", "accesses"),
        ("buffer_memory", "buffers"),
    ):
        _at_most(table, len(vectors[name]), getattr(limits, table))
    _at_most("operands", len(vectors["operand"]), limits.operands)
    _at_most("places", len(meta["places"]), limits.places)
    _at_most("events", len(meta["events"]), limits.events)
    program = Program(
        header=header,
        parameters=from_json(meta["parameters"]),
        outputs=tuple(
            Output(_int(access), _text_or_none(alias), _text(name)) for access, alias, name in meta["outputs"]
        ),
        streams=tuple(Stream(*map(_int, row)) for row in meta["streams"]),
        loops=tuple(_loop(row) for row in meta["loops"]),
        events=tuple(
            Event(_text(kind), _int(place), _text(detail)) for kind, place, detail in meta["events"]
        ),
        places=tuple(
            tuple(Frame(_int(file), _int(line), _text(function)) for file, line, function in place)
            for place in meta["places"]
        ),
        opcodes=tuple(Opcode(_text(name), tuple(map(_text, names))) for name, names in meta["opcodes"]),
        immediates=tuple(_unspell_row(row) for row in meta["immediates"]),
        strings=tuple(map(_text, meta["strings"])),
        dtypes=tuple(dtypes.of(_text(name)).name for name in meta["dtypes"]),
        columns=Columns(**vectors),
        extras={_int(row[0]): _extra(row[1:]) for row in meta["extras"]},
        buffer_constants={_int(buffer): _text(digest) for buffer, digest in meta["buffer_constants"]},
        constants=constants,
    )
    _check_buffers(program, limits)
    return program


def _check_buffers(program: Program, limits: Limits) -> None:
    columns, total = program.columns, 0
    bits = [dtypes.of(name).bits for name in program.dtypes]
    dims, at = columns.dim.tolist(), columns.dim_at.tolist()
    for number, code in enumerate(columns.buffer_dtype.tolist()):
        elements = math.prod(dims[at[number] : at[number + 1]])
        _at_most(f"bytes of buffer {number}", elements * bits[code] // 8, limits.buffer_bytes)
        total += elements
    _at_most("elements of all buffers", total, limits.total_buffer_elements)


def _vector(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str) -> NDArray[Any]:
    if f"{name}.npy" not in members:
        raise ProgramError(f"the program has no column {name}")
    # every member is stored, so its size is bounded by the bytes that already arrived
    return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)


def _constants(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], rows: list[Any], limits: Limits
) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for number, (digest, dtype, shape) in enumerate(rows):
        flat = _vector(archive, members, f"c{number}")
        wanted = np.dtype(dtype)
        sizes = [_int(size) for size in shape]
        if wanted.hasobject or flat.dtype != np.uint8 or flat.size != math.prod(sizes) * wanted.itemsize:
            raise ProgramError(f"constant {number} has not the bytes its shape asks for")
        found[_text(digest)] = flat.view(wanted).reshape(sizes)
    _at_most("bytes of constants", sum(values.nbytes for values in found.values()), limits.constant_bytes)
    return found


def _at_most(what: str, count: int, allowed: int) -> None:
    if count > allowed:
        raise ProgramError(f"the program has {count} {what}, more than {allowed}")


def _header_json(header: Header) -> dict[str, Any]:
    return {
        "schema": header.schema,
        "kernel": header.kernel,
        "target": header.target,
        "release": header.release,
        "lnc": header.lnc,
        "grid": list(header.grid),
        "scalars": [[name, _spell(value)] for name, value in header.scalars],
        "sources": [[source.path, source.sha256] for source in header.sources],
    }


def _header(data: dict[str, Any]) -> Header:
    if data["schema"] != SCHEMA:
        raise ProgramError(f"the program has schema {data['schema']}, this version reads {SCHEMA}")
    return Header(
        kernel=_text(data["kernel"]),
        target=_text(data["target"]),
        release=_text(data["release"]),
        lnc=_int(data["lnc"]),
        grid=tuple(map(_int, data["grid"])),
        scalars=tuple((_text(name), _unspell(value)) for name, value in data["scalars"]),
        sources=tuple(Source(_text(path), _text(digest)) for path, digest in data["sources"]),
    )


def _loop_json(loop: Loop) -> list[Any]:
    bounds = [list(bound) if isinstance(bound, tuple) else bound for bound in (loop.lower, loop.upper)]
    return [loop.kind, loop.start, loop.stop, loop.register, *bounds, loop.step, loop.parent, loop.place]


def _loop(row: list[Any]) -> Loop:
    kind, start, stop, register, lower, upper, step, parent, place = row
    low, high = (
        (_text(bound[0]), _int(bound[1])) if isinstance(bound, list) else _int(bound)
        for bound in (lower, upper)
    )
    numbers = (_int(start), _int(stop), _int(register))
    return Loop(_text(kind), *numbers, low, high, _int(step), _int(parent), _int(place))


def _extra_json(extra: AccessExtra) -> list[Any]:
    bounds = [[list(bound.coefficients), bound.constant] for bound in extra.bounds]
    index = extra.index
    where = None if index is None else list(astuple(index))
    return [bounds, where, extra.table]


def _extra(row: list[Any]) -> AccessExtra:
    bounds, where, table = row
    index = None
    if where is not None:
        kind, source, axis, stride, oob, limit, group = where
        numbers = (_int(source), _int(axis), _int(stride))
        index = Index(_text(kind), *numbers, _text(oob), None if limit is None else _int(limit), _int(group))
    affine = tuple(Bound(tuple(map(_int, coefficients)), _int(constant)) for coefficients, constant in bounds)
    return AccessExtra(affine, index, _text_or_none(table))


def _spell(value: Any) -> Any:
    """JSON for an immediate: floats by `repr`, so that infinities, NaN and -0.0 survive."""
    if isinstance(value, float):
        return {"f": repr(value)}
    if isinstance(value, dict):
        return {"d": [[key, _spell(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_spell(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    raise ProgramError(f"an immediate is a {type(value).__name__}, expected a number, string, list or None")


def _unspell(value: Any) -> Any:
    if isinstance(value, dict):
        if "f" in value:
            return float(_text(value["f"]))
        return {_text(key): _unspell(item) for key, item in value["d"]}
    if isinstance(value, list):
        return tuple(_unspell(item) for item in value)
    return value


def _unspell_row(row: Any) -> dict[str, Any]:
    found = _unspell(row)
    if not isinstance(found, dict):
        raise ProgramError("the immediates of an instruction are no table")
    return found


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProgramError(f"a {type(value).__name__} stands where an integer belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ProgramError(f"a {type(value).__name__} stands where a string belongs")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _refuse_constant(text: str) -> None:
    raise ProgramError(f"{META} holds {text}")
