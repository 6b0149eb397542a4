"""A stand-in for Harbor 0.21, as in the copy LegoX/harbor (73fd120)."""

__version__ = "0.21, a stand-in"
