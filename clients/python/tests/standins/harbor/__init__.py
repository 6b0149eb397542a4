"""A stand-in for Harbor 0.13.1, as in the copy lieexxli/harbor (0cc60d8)."""

__version__ = "0.13.1, a stand-in"
