"""Running a Program on data: values, definedness, PSUM state."""

from nkireview.execute.executor import Rounding, execute, execute_ranks
from nkireview.execute.poison import Poison
from nkireview.execute.result import Execution, Fault, OutputValue
from nkireview.execute.step import Around, Core, Operands, Step

__all__ = [
    "Around",
    "Core",
    "Execution",
    "Fault",
    "Operands",
    "OutputValue",
    "Poison",
    "Rounding",
    "Step",
    "execute",
    "execute_ranks",
]
