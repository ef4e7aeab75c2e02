"""The bases of all schemas of bodies, whose validators are built at their first use.

A server has many schemas, and its clients send few of them.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, RootModel

T = TypeVar("T")


class Schema(BaseModel):
    """A body, or a map in it."""

    model_config = ConfigDict(defer_build=True)


class RootSchema(RootModel[T]):
    """A body that is no map, or one of several."""

    model_config = ConfigDict(defer_build=True)
