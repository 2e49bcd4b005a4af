"""The scheduler process: campaigns for the advisory lock; the leader makes ticks into runs.

One connection for everything: the lock lives exactly as long as the session over which ticks are written, so a leader
that lost its lock cannot write one. It forks nothing, for a child would keep the session alive. Hears STOP.
May import everything below `service`.
"""
