"""The operating system: clocks, forking, process trees, links between processes.  Knows no job and no database.

May import errors, domain, config and log. Linux only: prctl, pidfd, /proc.
"""
