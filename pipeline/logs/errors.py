"""The one error of this room."""

from __future__ import annotations


class LogError(Exception):
    """The logs break the declared domain, or cannot be read: exit code 3.  Never names a value of a person."""
