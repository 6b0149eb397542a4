"""A stand-in for deepagents 0.7.8 (23b83ad)."""

__version__ = "0.7.8, a stand-in"
