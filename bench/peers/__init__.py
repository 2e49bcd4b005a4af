"""Other job queues in the same scenarios, on the same server, each in an environment of its own.

`contest` runs them; `with_*` are scripts that the environments' Pythons execute, so they import the peer, `adapter`
beside them and nothing of ours.
"""
