"""The web process: REST API, dashboard and metrics, thin faces over `service`.

Its own unit, never a child of the master: a draining node must still accept and show jobs. May import everything
below `master`.
"""
