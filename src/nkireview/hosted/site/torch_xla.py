"""What `import torch_xla` finds in processes that a hosted script starts."""

from nkireview.hosted.install import install

install()
