"""What the timing model says of public kernels against what was measured of them."""
