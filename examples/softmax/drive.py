"""Calls the kernel on an array, as host code does: `nkireview exec examples/softmax/drive.py`."""

import numpy as np
from submissions.good.kernel import softmax

x = np.random.default_rng(0).standard_normal((256, 1000)).astype(np.float32)
exponentials = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
expected = exponentials / exponentials.sum(axis=1, keepdims=True)
print(f"largest error {np.abs(softmax(x) - expected).max():.1e}")
