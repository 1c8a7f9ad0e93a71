"""Running untrusted Python in isolated child processes: a fork server, limits, and what came of each job."""

from nkireview.runner.job import Job, Limits, Outcome, RunnerError, Status
from nkireview.runner.pool import ForkServer, Lent, Session

__all__ = ["ForkServer", "Job", "Lent", "Limits", "Outcome", "RunnerError", "Session", "Status"]
