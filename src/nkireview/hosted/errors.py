"""What a launch raises beside the errors of tracing."""

from __future__ import annotations

from nkireview.nki.errors import Refusal


class InvalidKernelError(Refusal):
    """A limit of the hardware is broken so that the kernel has no meaning; also a `nki.isa.NkiValidationError`."""


class InvalidIndexError(InvalidKernelError, IndexError):
    """An access that leaves its tensor, known before anything runs."""


class KernelFault(RuntimeError):
    """The kernel met something without a defined result while it ran."""


class IndexFault(KernelFault, IndexError):
    """An access left its tensor while the kernel ran."""
