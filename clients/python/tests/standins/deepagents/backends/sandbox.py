"""Signatures of deepagents.backends.sandbox."""

import abc


class BaseSandbox(abc.ABC):
    @property
    @abc.abstractmethod
    def id(self): ...

    @abc.abstractmethod
    def execute(self, command, *, timeout=None): ...

    @abc.abstractmethod
    def upload_files(self, files): ...

    @abc.abstractmethod
    def download_files(self, paths): ...
