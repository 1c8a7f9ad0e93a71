"""nkireview: judge NKI kernels for AWS Trainium and Inferentia2 without the Neuron SDK or an accelerator."""

__version__ = "0.1.0"
