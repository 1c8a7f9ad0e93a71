"""Is the difference rounding, or is it wrong? Decided by experiments on the Program."""

from nkireview.diagnosis.diagnose import diagnose
from nkireview.diagnosis.model import Cause, Diagnosis
from nkireview.diagnosis.tolerance import Derivation, Tolerance

__all__ = ["Cause", "Derivation", "Diagnosis", "Tolerance", "diagnose"]
