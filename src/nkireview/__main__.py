"""``python -m nkireview``."""

from nkireview.cli import main

if __name__ == "__main__":
    main(prog_name="nkireview")
