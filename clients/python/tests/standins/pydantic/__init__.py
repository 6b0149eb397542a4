"""A stand-in for pydantic 2: models with fields and defaults, without validation."""

import copy

__version__ = "2.13, a stand-in"


class BaseModel:
    def __init_subclass__(cls, **more):
        super().__init_subclass__()

    def __init__(self, **values):
        self._names = [name for kind in reversed(type(self).__mro__) for name in vars(kind).get("__annotations__", ())]
        for name in self._names:
            if name not in values and not hasattr(type(self), name):
                raise ValueError(f"{name} is missing")
            setattr(self, name, values[name] if name in values else copy.copy(getattr(type(self), name)))

    def __eq__(self, other):
        return type(self) is type(other) and self.model_dump() == other.model_dump()

    def model_dump(self):
        return {name: getattr(self, name) for name in self._names}
