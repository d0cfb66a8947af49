"""What collectors of torch programs share: on the sweep's side, on the command line, and where a process is armed.

`collector` says how one is written. Nothing is imported here: what an observed process needs of it must not bring in
what only the sweep's side does.
"""
