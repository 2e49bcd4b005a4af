"""What a user can do, one function each: validation, one transaction, the answer.

The REST handlers, the dashboard and the command line are thin faces over these functions, so all of them agree. May
import everything below; each function takes a connection in autocommit and leaves it so.
"""
