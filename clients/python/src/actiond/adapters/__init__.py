"""Providers of sandboxes for other frameworks. Each module imports its framework, and is imported by its users alone."""
