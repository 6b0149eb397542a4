"""A stand-in for openai-agents 0.22.0 (7f7a44f)."""

__version__ = "0.22.0, a stand-in"
