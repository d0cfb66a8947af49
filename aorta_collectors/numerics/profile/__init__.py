"""Bricks: their time, their operations, what the machine allows, and closer looks."""
