"""A process that is observed: its rank, its files, its launch, and its end. Whatever a collector looks at, this is so.

Needs no torch to be imported, and asks torch only for a process group that the program has made.
"""
