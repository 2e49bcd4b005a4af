"""What users import to make their functions runs: the decorator and the registry that it fills.

`forgeflow.job` is handed out by the package itself. May import errors and domain; knows no database. The registry is
one per process, filled by importing: in a worker after the fork, so the master never sees user code.
"""
