"""The engine: models found and hooked, their calls and backward passes timed, step by step."""
