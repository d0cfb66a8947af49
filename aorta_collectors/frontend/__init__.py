"""Run somebody's program with collectors armed: `python -m aorta_collectors.frontend script.py | -m module | -c code`.

Runs inside the observed process and needs nothing but the standard library until a collector is armed. Which
collectors is said by the environment (AORTA_COLLECTORS_ARM); AORTA_COLLECTORS=off runs the program bare.
"""
