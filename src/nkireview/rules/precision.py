"""Rules over dtypes: integers and constants that a tile does not hold, sums kept in few digits, fp8, quantisation."""

from __future__ import annotations

from collections.abc import Iterator

from nkireview.checks import precision, routes_faults
from nkireview.checks.dataflow import Dataflow
from nkireview.isa import dtypes
from nkireview.rules.facts import WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.flows import at, opcode_of, place_of, traced, wrong_inputs
from nkireview.rules.rule import Draft, Rule, each

LONG_SUM = 16
"""Terms from which on a sum in low precision is major."""


def _digits(name: str) -> int:
    return dtypes.BY_NAME[name].significand_bits


def _indices(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.lossy_indices(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        failing = wrong_inputs(facts)
        yield Draft(
            f"{opcode}: integers up to {item.largest} are kept in {item.dtype}, which does not hold "
            f"{item.first} (it becomes {item.becomes:g}){at(places)}",
            places,
            item.count,
            facts.name,
            severity=Severity.blocker if failing else None,
            failing=failing,
        )


def _running(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.running_sums(flow):
        places = place_of(flow, item.instruction)
        bound = item.terms * 2.0 ** -_digits(item.dtype)
        yield Draft(
            f"a sum of {item.terms} terms is kept in {item.dtype} and rounded at each of them: relative error up to "
            f"{bound:.2g}, where float32 would give {item.terms * 2.0**-24:.1g}{at(places)}",
            places,
            workload=facts.name,
            severity=Severity.major if item.terms >= LONG_SUM else Severity.minor,
        )


def _psum(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.low_psum(flow):
        places = place_of(flow, item.instruction)
        yield Draft(
            f"{item.terms} matmuls accumulate in a {item.dtype} PSUM tile: the sum is rounded to "
            f"{_digits(item.dtype)} digits after each{at(places)}",
            places,
            item.terms,
            facts.name,
        )


def _passages(wider: bool, facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.narrow_passages(flow):
        places = place_of(flow, item.instruction)
        opcode = opcode_of(flow, item.instruction)
        if wider != (_digits(item.after) > _digits(item.narrow)):
            continue
        if wider:
            text = (
                f"{opcode}: a result of {item.wide} operands is written as {item.narrow} and then copied to "
                f"{item.after}: {_digits(item.narrow)} of {_digits(item.after)} digits are left{at(places)}"
            )
        else:
            text = (
                f"{opcode}: a result of {item.wide} operands is rounded to {item.narrow} and again to {item.after}"
                f"{at(places)}"
            )
        yield Draft(text, places, item.count, facts.name)


def _wider(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    yield from _passages(True, facts, flow)


def _twice(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    yield from _passages(False, facts, flow)


def _raw_fp8(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.raw_fp8(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: values are written as {item.name} neither scaled nor bounded: what exceeds "
            f"{item.number:g} is no longer finite{at(places)}",
            places,
            item.count,
            facts.name,
            failing=f"any element beyond {item.number:g}",
        )


def _clamps(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.wide_clamps(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        largest = dtypes.BY_NAME[item.name].max_finite
        yield Draft(
            f"{opcode}: values are bounded at {item.number:g}, but {item.name} ends at {largest:g}: "
            f"those between are no longer finite{at(places)}",
            places,
            item.count,
            facts.name,
            failing=f"any element between {largest:g} and {item.number:g}",
        )


def _overflowing(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item, held in precision.fills(flow):
        if held != 0:
            places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
            yield Draft(
                f"{opcode}: the number {item.number:.6g} is beyond {item.name} and becomes {held:g}"
                f"{at(places)}",
                places,
                item.count,
                facts.name,
            )


def _vanishing(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item, held in precision.fills(flow):
        if held == 0:
            places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
            yield Draft(
                f"{opcode}: the number {item.number:.6g} is below {item.name} and becomes 0{at(places)}",
                places,
                item.count,
                facts.name,
            )


def _integers(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.inexact_integers(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: {item.name} of 32-bit integers runs in float32, which does not hold {item.number:.0f}, "
            f"beyond 16777216{at(places)}",
            places,
            item.count,
            facts.name,
        )


def _divisors(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.rounded_divisors(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: a sum of {item.terms} elements that divides the result is rounded to "
            f"{item.dtype}: every element of its row gets a relative error of up to {2.0 ** -_digits(item.dtype):.2g}"
            f"{at(places)}",
            places,
            workload=facts.name,
        )


def _statistics(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.rounded_statistics(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        error = 2.0 ** -_digits(item.dtype)
        yield Draft(
            f"{opcode}: means and variances are written as {item.dtype}: the mean is off by up to {error:.2g} of "
            f"itself, which is the whole spread where it is {1 / error:.0f} standard deviations{at(places)}",
            places,
            workload=facts.name,
            failing=f"rows with a mean of {1 / error:.0f} standard deviations",
        )


def _downgraded(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.downgraded_matmuls(flow):
        places = place_of(flow, item.instruction)
        name, dtype = item.name.rsplit(" ", 1)
        yield Draft(
            f"the float32 input {name} is rounded to {dtype} before the matmul, and an output is float32{at(places)}",
            places,
            item.count,
            facts.name,
            group=name,
        )


def _equals(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in precision.unequal_equals(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: {item.after} compares {item.wide} values with their maximum or minimum rounded "
            f"to {item.narrow}: they are equal only by chance{at(places)}",
            places,
            item.count,
            facts.name,
            failing="a row whose extreme value needs more digits than the narrow tile has",
        )


def _late_clamps(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in routes_faults.late_clamps(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: values are bounded near {item.number:g} after they became {item.name}, when those beyond it "
            f"have overflowed{at(places)}",
            places,
            item.count,
            facts.name,
            failing=f"values beyond {item.number:g}",
        )


def _wrong_axes(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in routes_faults.wrong_axes(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        other = at(place_of(flow, item.other))
        if item.kind == "transposed":
            text = (
                f"{opcode}: values become {item.dtype} with one scale for each partition, but the maxima{other} were "
                f"taken of the tile before it was transposed: they belong to its columns{at(places)}"
            )
        else:
            text = (
                f"{opcode}: values become {item.dtype} with one scale for each partition, over which the matmul{other} "
                f"adds up: no factor of its result takes such scales off again{at(places)}"
            )
        yield Draft(text, places, item.count, facts.name, failing=wrong_inputs(facts))


def _other_scales(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in routes_faults.other_scales(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        other = at(place_of(flow, item.other))
        texts = {
            "maximum": f"{item.dtype} values{other} are multiplied back by a scale of another tensor's maximum",
            "power": f"{item.dtype} values{other} are multiplied by the scale that they were multiplied by already, "
            "where its reciprocal brings them back",
            "range": f"{item.dtype} values{other} were scaled to {item.first:g}, and back from {item.second:g}",
            "zero": f"{item.dtype} values{other} have the zero point {item.first:g}, and {item.second:g} is taken off",
            "mx": f"the scales of {item.dtype} data were written by another quantize_mx{other} than the data",
        }
        yield Draft(
            f"{opcode}: {texts[item.kind]}{at(places)}",
            places,
            item.count,
            facts.name,
            failing=wrong_inputs(facts),
        )


def _lost_saturation(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in routes_faults.lost_saturation(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: the low bits of a scaled value in {item.name} are kept: {item.number + 1:.0f} becomes 0 "
            f"instead of {item.number:.0f}{at(places)}",
            places,
            item.count,
            facts.name,
            failing=f"values that are scaled beyond {item.number:.0f}",
        )


def _mixed_fills(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in routes_faults.mixed_fills(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: the zero point {item.second:g} is taken off, but masked elements were set to "
            f"{item.first:g}{at(place_of(flow, item.other))}: they become {item.first - item.second:g} times the "
            f"scale, not 0{at(places)}",
            places,
            item.count,
            facts.name,
            failing="masked elements",
        )


def _stored(facts: WorkloadFacts) -> Iterator[Draft]:
    for output in sorted({item.output for item in facts.rounded if item.in_contract}):
        items = [item for item in facts.rounded if item.output == output and item.in_contract]
        worst = max(items, key=lambda item: (item.rms > 1, item.over, item.rms))
        beyond = []
        if worst.over:
            beyond.append(
                f"the elementwise limit of a float32 accumulator on {worst.over:,} of {worst.elements:,} elements"
            )
        if worst.rms > 1:
            beyond.append(f"the limit of the rms error by a factor of {worst.rms:.2f}")
        drawn = (
            f"seed {worst.seed}"
            if worst.inputs == "as drawn"
            else f"{worst.inputs} inputs, seed {worst.seed}"
        )
        times = "once" if worst.roundings == 1 else f"{worst.roundings} times"
        yield Draft(
            f"output {output} exceeds {' and '.join(beyond)} ({drawn}); computed without rounding it does not: the "
            f"intermediates on the way are rounded to {worst.dtype} {times}",
            worst.places,
            len(items),
            facts.name,
            severity=Severity.major if worst.rms > 1 else None,
            group=output,
            failing=f"workload {facts.name}, {drawn}",
        )


_NUMERICS = "aws-neuron-sdk nki/api/nki.api.shared.rst"
_ISA = "aws-neuron-sdk nki/api/nki/isa/__init__.py"
_TRN1 = "aws-neuron-sdk nki/guides/architecture/trainium_inferentia2_arch.rst"
_MAJOR, _MINOR, _NOTE = Severity.major, Severity.minor, Severity.note

RULES = (
    Rule(
        "NKR070",
        "Integers are kept in a dtype that does not hold them",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "A float holds consecutive integers up to two to the number of its digits: 256 in bfloat16, 2048 in "
        "float16, 16777216 in float32. Larger indices are rounded to a neighbour and point at another "
        "element; with few columns nothing is seen. A blocker where an output is wrong as well.",
        traced(_indices),
        citation=f"{_NUMERICS}:10-55",
        change="Keep index tiles in int32 or float32, and convert only what fits.",
    ),
    Rule(
        "NKR071",
        "A running sum is kept in low precision",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "Vector and GpSimd compute in float32 and round once when they write. A sum that lives in a bfloat16 "
        "tile is rounded at every addition: its error grows with the number of terms, and terms below the "
        "spacing of the sum are lost altogether. Minor below 16 terms.",
        traced(_running),
        citation=f"{_TRN1}:315-318",
        change="Make the accumulator float32 (or accumulate in PSUM) and convert once at the end.",
    ),
    Rule(
        "NKR072",
        "Matmuls accumulate in a PSUM tile of low precision",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "NeuronCore-v4 can accumulate into a bfloat16 PSUM tile: each matmul reads the sum, adds in float32 "
        "and rounds it back, so that each tile of the contraction costs one rounding.",
        traced(_psum),
        citation="aws-neuron-sdk nki/guides/architecture/trainium3_arch.rst:129-143",
        change="Accumulate in float32 PSUM and convert when PSUM is evacuated.",
        generations=frozenset({"v4"}),
    ),
    Rule(
        "NKR073",
        "A result passes through a narrower tile than the one it ends in",
        _MINOR,
        Dimension.precision,
        Evidence.traced,
        "The engines compute in float32. A result that is written to a narrow tile and only copied from there into a "
        "wider one has lost the digits that the wider one has room for; writing it there at once costs nothing more.",
        traced(_wider),
        citation=f"{_TRN1}:421-423",
        change="Give the tile in between the dtype of the destination.",
    ),
    Rule(
        "NKR074",
        "A result is rounded twice",
        _MINOR,
        Dimension.precision,
        Evidence.traced,
        "Rounding to one format and then to a narrower one can miss the nearest value of the narrower, which "
        "rounding once would have given.",
        traced(_twice),
        citation="aws-neuron-sdk about-neuron/arch/neuron-features/rounding-modes.rst:24-26",
        change="Write the result in its final dtype at once, or keep float32 in between.",
    ),
    Rule(
        "NKR075",
        "Values become fp8 neither scaled nor bounded",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "float8_e4m3 ends at 240 and float8_e5m2 at 57344. No document promises that a conversion saturates; "
        "beyond the range infinities or NaN must be expected, and they spread over a whole matmul.",
        traced(_raw_fp8),
        citation=f"{_ISA}:2842-2846",
        causes=frozenset({"NKR085"}),
        change="Scale by the row's largest magnitude, or bound with minimum and maximum, before the conversion.",
    ),
    Rule(
        "NKR076",
        "Values are bounded at a number that the dtype does not reach",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "float8_e4m3 of NKI is the format with infinities: it ends at 240. The 448 of other platforms belongs to "
        "float8_e4m3fn. A bound above the end of the dtype protects nothing.",
        traced(_clamps),
        citation="aws-neuron-sdk nki/api/nki/language/__init__.py:41-45",
        change="Bound at the largest number of the dtype: 240 for float8_e4m3, 57344 for float8_e5m2, 65504 for "
        "float16.",
    ),
    Rule(
        "NKR077",
        "A constant is beyond the range of its tile",
        _MINOR,
        Dimension.precision,
        Evidence.traced,
        "A finite number that the dtype cannot hold is stored as infinity. As a mask it makes inf - inf, "
        "which is NaN, out of a row that is masked whole.",
        traced(_overflowing),
        citation=f"{_ISA}:2842-2846",
        change="Use a number that the dtype holds (-30000 for float16, -3e38 for bfloat16), or a float32 tile.",
    ),
    Rule(
        "NKR078",
        "A constant vanishes in its tile",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "A number below the smallest of the dtype is stored as zero. An epsilon that was to keep a divisor "
        "from zero is then not there.",
        traced(_vanishing),
        citation=f"{_NUMERICS}:10-55",
        change="Keep the constant in float32, where 1e-38 is still there, or pass it as an immediate.",
    ),
    Rule(
        "NKR079",
        "Integer arithmetic beyond 2**24 runs in float32",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "Vector converts every arithmetic operand to float32, integers too; only GpSimd adds and multiplies "
        "32-bit integers exactly, and nisa.tensor_tensor alone can run there. Beyond 16777216 results are "
        "rounded to even numbers, then to multiples of four.",
        traced(_integers),
        citation=f"{_ISA}:1032-1040",
        change="Use nisa.tensor_tensor with engine=nisa.engine.gpsimd, or bitwise operators, which are exact "
        "everywhere.",
        legacy="Use nisa.tensor_tensor with engine=nisa.gpsimd_engine, or bitwise operators, which are exact "
        "everywhere.",
    ),
    Rule(
        "NKR080",
        "A divisor is rounded to low precision",
        _MINOR,
        Dimension.precision,
        Evidence.traced,
        "The sum of a softmax or a norm divides every element of its row. Rounded to bfloat16 it shifts all "
        "of them by the same relative error, which does not average out.",
        traced(_divisors),
        citation=f"{_TRN1}:315-318",
        change="Make the tile of the sum float32; it has one element a partition and costs nothing.",
    ),
    Rule(
        "NKR081",
        "A float32 input is rounded before the matmul",
        _NOTE,
        Dimension.precision,
        Evidence.traced,
        "The PE array multiplies bfloat16 four times as fast as float32. It is a trade that the contract must allow: "
        "eight digits are left of each factor.",
        traced(_downgraded),
        citation=f"{_TRN1}:268-270",
        change="Say so in the docstring, or keep float32 operands.",
    ),
    Rule(
        "NKR082",
        "Values are compared with a rounded copy of their own extreme",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "Comparisons run in float32. A maximum that was stored in a narrower tile equals the element it came "
        "from only where that element needs no more digits, so that a search by equality finds nothing in the "
        "other rows.",
        traced(_equals),
        citation=f"{_ISA}:1032-1040",
        change="Keep the maximum in float32, or use nisa.max8 and nisa.nc_find_index8.",
    ),
    Rule(
        "NKR083",
        "Rounded intermediates take a result beyond the limits of a float32 accumulator",
        _MINOR,
        Dimension.precision,
        Evidence.executed,
        "The engines compute in float32 and round when they write. An intermediate that is stored in the output's "
        "dtype costs one more rounding, which shows most where larger terms cancel. The result is as good as such "
        "intermediates allow, and counts as correct. Major where the error of the whole output exceeds its limit.",
        each(_stored),
        citation=f"{_TRN1}:315-318",
        change="Keep the intermediates in float32, or do both operations in one instruction.",
    ),
    Rule(
        "NKR084",
        "Statistics are kept in low precision",
        _MINOR,
        Dimension.precision,
        Evidence.traced,
        "bn_stats and bn_aggr compute in float32 and round when they write. A mean in bfloat16 has eight digits; what "
        "is left after it is subtracted has an error that grows with the mean, the same in every element of the row.",
        traced(_statistics),
        citation=f"{_ISA}:1939-1973",
        change="Make the tile of the statistics float32; it has a few elements a partition and costs nothing.",
    ),
    Rule(
        "NKR085",
        "Values are bounded only after they became fp8",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "A bound protects a conversion where it comes first. What lies beyond the range has become infinite or NaN by "
        "then: float8_e4m3fn has no infinity, and what minimum and maximum make of NaN no document says.",
        traced(_late_clamps),
        citation=f"{_ISA}:2842-2846",
        change="Bound in the instruction that writes the fp8 tile: minimum and maximum are its op0 and op1.",
    ),
    Rule(
        "NKR086",
        "A scale was taken along one axis and is applied along another",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "A maximum over the free axis belongs to its partition. After a transpose partitions are what were columns, "
        "and on a square tile nothing complains. A scale that varies along the contraction of a matmul cannot be "
        "taken off its result, each element of which has summed over all of them.",
        traced(_wrong_axes),
        citation=f"{_ISA}:1161-1244",
        change="Take the maximum of the tile that is quantised, along the axis that the matmul does not contract.",
    ),
    Rule(
        "NKR087",
        "Values are scaled back by something else than they were scaled by",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "What quantisation multiplies by, the way back must divide by: the same maximum, the same range of the dtype, "
        "the same zero point. Otherwise all values are off by one factor or one step, which a loose tolerance passes.",
        traced(_other_scales),
        change="Make both factors of one maximum and one constant, and take off the zero point that was added.",
    ),
    Rule(
        "NKR088",
        "Saturation is lost to an operation on bits",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "An engine that writes a float as an integer rounds to the nearest and saturates. The low bits of a wider "
        "integer do not: one step beyond the range wraps to its other end.",
        traced(_lost_saturation),
        citation="aws-neuron-sdk release-notes/components/nki.rst:71",
        change="Write the float to the 8-bit tile at once, or bound it with minimum and maximum before taking bits.",
    ),
    Rule(
        "NKR089",
        "Masked elements do not hold the zero point",
        _MAJOR,
        Dimension.precision,
        Evidence.traced,
        "Where values are quantised around a zero point, that number stands for 0. A mask that writes another one, "
        "0 most of all, puts a value as large as the zero point times the scale in the place of nothing.",
        traced(_mixed_fills),
        change="Fill with the zero point, or mask once the values are floats again.",
    ),
)
