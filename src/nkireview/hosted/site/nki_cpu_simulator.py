"""What `import nki_cpu_simulator` finds in processes that a hosted script starts."""

from nkireview.hosted.install import install

install()
