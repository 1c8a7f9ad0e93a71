"""nkireview: judge NKI kernels for AWS Trainium and Inferentia2 without the Neuron SDK or an accelerator."""

import os

# Large arrays are made and dropped all the time: the kernel may stall for each while it looks for huge pages.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")

__version__ = "0.1.0"
