"""What every child would otherwise make again: the fork server imports this before its first fork."""

from nkireview.isa.names import changed_names

changed_names()
