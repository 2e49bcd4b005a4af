"""A worker process: one connection, one run at a time; claim, execute, finish.

Owns its runs through its row in `workers`, which the node's beat keeps alive. It says READY when that row stands,
START before it begins a run, IDLE (with the time before the claim that found nothing) when there is none, and
RETRY_IN when a failed run is to be looked for again; it hears WAKE, DRAIN, CANCEL and STOP. May import everything
below `service`, and `executors`.
"""
