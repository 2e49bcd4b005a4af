"""`python -m forgeflow.cli`: how `forgeflow up` starts its services."""

from forgeflow.cli.main import main

main()
