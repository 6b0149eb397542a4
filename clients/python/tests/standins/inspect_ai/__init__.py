"""A stand-in for inspect_ai 0.3.260 (499e615)."""

__version__ = "0.3.260, a stand-in"
