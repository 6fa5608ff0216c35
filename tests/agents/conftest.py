"""Agents are played through the door."""

from tests.online.simulated import simulate

__all__ = ["simulate"]
