"""The command line: reads arguments, calls what is below, turns errors into a sentence and an exit code."""
