"""Points in the life of a process's models, told to whoever listens: steps, calls, backward passes, optimizer steps."""
