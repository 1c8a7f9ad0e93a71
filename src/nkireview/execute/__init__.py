"""Running a Program on data: values, definedness, PSUM state."""

from nkireview.execute.executor import Rounding, execute, execute_ranks
from nkireview.execute.poison import Poison
from nkireview.execute.result import Execution, Fault, OutputValue

__all__ = ["Execution", "Fault", "OutputValue", "Poison", "Rounding", "execute", "execute_ranks"]
