"""PostgreSQL: the only importer of psycopg.

One function per statement, in a module named like the statement's folder in `sql/`; a function's keyword parameters
are the parameters of its statement. Functions that run several statements as one say so. May import errors, domain,
config, log and process. Connections are opened after the fork and never carried across one.
"""
